"""Steps 1 to 5: each number against what it is made of, worked out another way."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.planning.alone import unmeetable
from headway.planning.arithmetic import work_out
from headway.planning.batch import batch_of, bounds_of, largest_batch
from headway.planning.demand import contexts_of, demand_of, peak_rate
from headway.planning.kv import KvMemory, kv_bound
from headway.workload import Arrival, ClosedLoop, Targets, Workload, WorkloadError, in_order

COST = StepCosts(base_s=0.01, prefill_token_s=0.0001, decode_s=0.001)
LIMITS = SchedulerLimits(
    num_blocks=1000, block_size=16, max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=1024
)
lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12)


def arrivals(
    sizes: list[tuple[int, int]], gap_s: float = 1.0, class_name: str = "default"
) -> list[Arrival]:
    return [
        Arrival(at_s=n * gap_s, prompt_tokens=prompt, output_tokens=output, class_name=class_name)
        for n, (prompt, output) in enumerate(sizes)
    ]


def day(sizes: list[tuple[int, int]], targets: Targets | None = None) -> Workload:
    promised = {} if targets is None else {"default": targets}
    return Workload(arrivals(sizes), (), float(len(sizes)), promised)


# ------------------------------------------------------------- what comes


@given(lengths)
def test_contexts_are_those_of_each_token_of_each_answer(sizes: list[tuple[int, int]]) -> None:
    held = [prompt + i for prompt, output in sizes for i in range(1, output + 1)]
    found = contexts_of(arrivals(sizes))
    assert found.mean == pytest.approx(fmean(held))
    assert found.deviation == pytest.approx(pstdev(held), abs=1e-6)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0.5, 50))
def test_the_peak_is_the_most_in_any_window(moments: list[float], window_s: float) -> None:
    times = sorted(moments)
    most = max(sum(a <= t < a + window_s for t in times) for a in times)
    assert peak_rate(times, window_s) == pytest.approx(most / window_s)


def test_a_class_without_targets_may_wait_at_the_peak() -> None:
    burst = [replace(each, at_s=90.0) for each in arrivals([(10, 5)] * 20)]
    chat = [replace(each, class_name="chat") for each in burst]
    found = demand_of(Workload([*burst, *chat], (), 100.0, {"chat": Targets(ttft_s=1.0)}))
    first, other = found.classes
    assert (first.name, other.name) == ("chat", "default")
    assert first.planned_rate == pytest.approx(20 / 10)  # a tenth of the day is the window
    assert other.planned_rate == pytest.approx(20 / 100)
    assert found.planned_tokens_per_s == pytest.approx(5 * (2.0 + 0.2))


def test_what_has_no_rate_is_refused() -> None:
    loop = ClosedLoop(1, 0.0, 0.0, iter(()))
    with pytest.raises(WorkloadError, match="open loop"):
        demand_of(Workload((), (loop,), 10.0, {}))
    at_once = [replace(each, at_s=0.0) for each in arrivals([(10, 5)] * 3)]
    with pytest.raises(WorkloadError, match="all requests come at once"):
        demand_of(Workload(at_once, (), float("inf"), {}))


# ------------------------------------------------------------- memory

MEMORY = KvMemory(
    num_layers=32,
    hidden_size=4096,
    num_kv_heads=8,
    head_dim=128,
    element_bytes=2,
    kv_bytes=80e9 * 0.9 - 14e9,
    said="0.9 x 80 GB - 14 GB",
)


def test_both_formulas_of_a_token() -> None:
    assert MEMORY.ungrouped_token_bytes == 2 * 32 * 4096 * 2  # as the source document has it
    assert MEMORY.token_bytes == MEMORY.ungrouped_token_bytes / 4  # 8 of 32 heads are kept


@given(lengths, st.integers(1, 400))
def test_what_fits_fits_and_one_more_does_not(sizes: list[tuple[int, int]], blocks: int) -> None:
    contexts = contexts_of(arrivals(sizes))
    limits = replace(LIMITS, num_blocks=blocks)
    found = kv_bound(limits, contexts, None)
    number, half = found.num_seqs, limits.block_size / 2

    def needed(count: int) -> float:
        return count * (contexts.of_many(count) + half)

    assert needed(number + 1) > found.num_tokens - 1e-6
    assert number == 1 or needed(number) <= found.num_tokens + 1e-6
    assert number <= max(found.num_mean, 1)


# ------------------------------------------------------------- batches


@given(
    lengths,
    st.floats(0.011, 0.3) | st.none(),
    st.floats(0.02, 3.0) | st.none(),
)
def test_the_largest_batch_keeps_the_targets_and_one_more_does_not(
    sizes: list[tuple[int, int]], tpot_s: float | None, ttft_s: float | None
) -> None:
    demand = demand_of(day(sizes, Targets(tpot_s=tpot_s, ttft_s=ttft_s)))
    bounds = bounds_of(COST, demand)
    found = largest_batch(COST, demand, bounds, 200)
    can_wait = batch_of(1, COST, demand, bounds).wait_s >= 0
    if found.num_seqs > 1:
        assert found.full_s <= bounds.token_s
        assert found.wait_s >= 0 or not can_wait
    if found.num_seqs < 200:
        more = batch_of(found.num_seqs + 1, COST, demand, bounds)
        assert more.full_s > bounds.token_s or more.wait_s < 0


@given(lengths, st.integers(1, 100), st.floats(0.011, 1.0))
def test_a_step_is_as_full_as_its_target_lets_it_and_keeps_pace(
    sizes: list[tuple[int, int]], number: int, tpot_s: float
) -> None:
    demand = demand_of(day(sizes, Targets(tpot_s=tpot_s)))
    bounds = bounds_of(COST, demand)
    found = batch_of(number, COST, demand, bounds)
    assert found.budget >= number + found.prefill_tokens
    assert found.decode_s <= found.step_s <= found.full_s
    least = number + max(found.prefill_tokens, 16)
    if found.full_s > tpot_s:  # it is the least there is
        assert found.budget < least + 16


@given(st.integers(1, 60), st.integers(1, 40), st.integers(24, 256))
def test_no_batch_gives_more_in_so_many_tokens_a_step(prompt: int, out: int, budget: int) -> None:
    """More sequences than those whose prompts have room would leave less room for prompts."""
    demand = demand_of(day([(prompt, out)] * 4))
    bounds = bounds_of(COST, demand)
    found = largest_batch(COST, demand, bounds, 200, budget)
    if found.num_seqs > 1:
        assert found.num_seqs + found.prefill_tokens <= budget
    for number in range(found.num_seqs + 2, budget, 7):
        other = batch_of(number, COST, demand, bounds, budget)
        assert other.num_seqs + other.prefill_tokens > budget or number > 200


def test_a_later_target_with_longer_prompts_may_leave_less_to_wait() -> None:
    chat = arrivals([(20, 10)] * 5, class_name="chat")
    papers = arrivals([(2000, 10)] * 5, class_name="papers")
    targets = {"chat": Targets(ttft_s=1.0), "papers": Targets(ttft_s=1.1)}
    demand = demand_of(Workload(in_order([*chat, *papers]), (), 5.0, targets))
    found = batch_of(4, COST, demand, bounds_of(COST, demand), 104)
    assert found.first.of == "TTFT of papers"
    assert found.prompt_s == pytest.approx(20 * found.full_s)  # 100 tokens a step
    assert found.wait_s == pytest.approx(1.1 - 21 * found.full_s)


def test_the_numbers_of_a_small_case() -> None:
    demand = demand_of(day([(100, 50)] * 10, Targets(tpot_s=0.06, ttft_s=1.0)))
    found = work_out(demand, COST, LIMITS)
    # 10 ms, and for each of n sequences 1 ms and two tokens of prompt of 0.1 ms: n = 41 at 60 ms;
    # a step has a multiple of 16 tokens, so one that keeps pace with 41 is longer
    batch = found.by_time
    assert batch.prefill_tokens == pytest.approx(2 * batch.num_seqs)
    assert batch.step_s == pytest.approx(0.01 + 0.0012 * batch.num_seqs, abs=0.0002)
    assert 35 <= batch.num_seqs <= 41
    assert batch.wait_s == pytest.approx(1.0 - batch.prompt_s - batch.full_s)
    assert found.chosen == batch  # memory holds more
    assert found.instances.each == pytest.approx(batch.num_seqs / batch.step_s)
    assert found.instances.number == 1


def test_memory_bounds_where_it_is_less() -> None:
    demand = demand_of(day([(100, 50)] * 10, Targets(tpot_s=0.06)))
    found = work_out(demand, COST, replace(LIMITS, num_blocks=30))
    assert found.chosen.num_seqs == found.by_memory.num_seqs < found.by_time.num_seqs


def test_the_time_of_a_whole_answer_bounds_its_tokens() -> None:
    demand = demand_of(day([(100, 50)] * 10, Targets(e2el_s=1.02)))
    bounds = bounds_of(COST, demand)
    assert bounds.token_s == pytest.approx((1.02 - 0.02) / 50)


def test_a_machine_twice_as_slow_needs_more_instances() -> None:
    demand = demand_of(day([(100, 50)] * 100, Targets(tpot_s=0.06)))
    slow = StepCosts(base_s=0.02, prefill_token_s=0.0002, decode_s=0.002)
    fast, slower = (work_out(demand, cost, LIMITS) for cost in (COST, slow))
    assert slower.instances.each < fast.instances.each / 2
    assert slower.instances.number >= fast.instances.number


# ------------------------------------------------------------- what can't be


def test_a_target_that_one_request_alone_misses_is_named_with_the_best() -> None:
    promised = Targets(ttft_s=0.015, tpot_s=0.0109, e2el_s=10.0)
    ttft, tpot = unmeetable(COST, day([(100, 50)] * 3, promised))
    assert (ttft.target, ttft.best_s) == ("ttft", pytest.approx(0.02))
    assert (tpot.target, tpot.best_s) == ("tpot", pytest.approx(0.011))
    assert unmeetable(COST, day([(100, 50)] * 3, Targets(ttft_s=0.021, tpot_s=0.012))) == []


def test_an_answer_of_one_token_has_no_time_between_tokens() -> None:
    assert unmeetable(COST, day([(100, 1)], Targets(tpot_s=0.0001))) == []
