"""Ways in which a scheduler can fail its users though no invariant breaks: each was seen once.

All in virtual time, on a machine whose steps take 20 ms, and 0.1 ms for each prompt token.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from benchmarks.bound import Machine, bounds

from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import Batching, SchedulerLimits
from headway.metrics.quantiles import quantile
from headway.sim import RequestRecord, SimulationResult, report_by_class, simulate
from headway.sim.report import meets_targets
from headway.workload import Arrival, drawn_between, merged, poisson_arrivals

COST = StepCosts(base_s=0.02, prefill_token_s=0.0001, decode_s=0.0005)


def config(
    policy: PolicyName = PolicyName.FCFS,
    classes: tuple[ServiceClass, ...] = (ServiceClass(),),
    *,
    ageing_s: float = 60.0,
    costs: StepCosts | None = None,
    **changes: Any,
) -> SchedulerConfig:
    numbers: dict[str, Any] = {
        "num_blocks": 4000,
        "block_size": 16,
        "max_model_len": 32_768,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 1024,
        **changes,
    }
    return SchedulerConfig(
        limits=SchedulerLimits(**numbers),
        policy=PolicyConfig(name=policy, ageing_s=ageing_s),
        classes=classes,
        costs=costs or StepCosts(),
    )


def every(
    gap_s: float, count: int, prompt: int, output: int, *, at_s: float = 0.0, **more: Any
) -> list[Arrival]:
    """Requests at even distances."""
    return [
        Arrival(
            at_s=at_s + number * gap_s,
            prompt_tokens=prompt,
            output_tokens=output,
            max_tokens=output,
            **more,
        )
        for number in range(count)
    ]


def chats(
    rate: float, duration_s: float, output: tuple[int, int] = (40, 160), **more: Any
) -> list[Arrival]:
    lengths = drawn_between((64, 512), output, Random(1))
    drawn = poisson_arrivals(rate, lengths, Random(1), duration_s=duration_s, **more)
    return [replace(each, max_tokens=2 * output[1]) for each in drawn]


def of_class(result: SimulationResult, name: str) -> list[RequestRecord]:
    return [each for each in result.requests if each.arrival.class_name == name]


def ttfts(records: list[RequestRecord]) -> list[float]:
    found = [each.ttft_s for each in records if each.ttft_s is not None]
    assert len(found) == len(records), "somebody never got a token"
    return found


# -------------------------------------------------------------------- targets that can't be met


@pytest.mark.parametrize("batching", Batching)
@pytest.mark.parametrize("count", [257, 5000])
def test_however_many_requests_are_late_at_once_all_end(count: int, batching: Batching) -> None:
    late = (ServiceClass(ttft_target_s=0.001),)  # a step alone takes longer
    made = config(PolicyName.SLO, late, batching=batching, max_num_seqs=64)
    result = simulate(made, every(0.0, count, 20, 2), COST)
    assert len(result.finished) == count


@pytest.mark.parametrize("ageing_s", [10.0, 60.0])
def test_under_lasting_overload_late_work_that_ages_leaves_most_promises_kept(
    ageing_s: float,
) -> None:
    chat = ServiceClass(name="chat", ttft_target_s=1.0, tpot_target_s=0.08)
    arrivals = chats(9.0, 120.0, (20, 80), class_name="chat")

    def share_kept(ageing_s: float) -> float:
        made = config(PolicyName.SLO, (chat,), ageing_s=ageing_s, max_num_seqs=8)
        result = simulate(made, arrivals, COST, until_s=120.0)
        assert len(result.finished) < 0.7 * len(arrivals), "this is no overload"
        last = [each for each in result.requests if each.arrival.at_s >= 60.0]
        return sum(meets_targets(each, chat) for each in last) / len(last)

    assert share_kept(ageing_s) > share_kept(1e6) / 2


def test_late_work_goes_on_under_lasting_overload() -> None:
    chat = ServiceClass(name="chat", ttft_target_s=1.0)
    made = config(PolicyName.SLO, (chat,), ageing_s=10.0, max_num_seqs=8)
    result = simulate(made, chats(9.0, 120.0, (20, 80), class_name="chat"), COST, until_s=120.0)
    early = [each for each in result.requests if each.arrival.at_s < 15.0]
    assert any((each.ttft_s or 0.0) > 10.0 for each in early), "nobody was late"
    assert all(each.is_finished for each in early)


@pytest.mark.parametrize("target_s", [0.01, 0.02])
def test_a_target_for_further_tokens_that_no_step_can_meet_slows_nobody_down(
    target_s: float,
) -> None:
    classes = (
        ServiceClass(name="chat", ttft_target_s=1.0, tpot_target_s=target_s),
        ServiceClass(name="document", ttft_target_s=10.0),
    )
    documents = every(3.0, 20, 3000, 100, class_name="document")
    arrivals = merged(chats(2.0, 60.0, class_name="chat"), documents)

    def shown(policy: PolicyName) -> SimulationResult:
        return simulate(config(policy, classes, max_num_seqs=64), arrivals, COST)

    fcfs, slo = (
        report_by_class(shown(policy), classes) for policy in (PolicyName.FCFS, PolicyName.SLO)
    )
    for one, other in zip(fcfs, slo, strict=True):
        assert other.p99_ttft_s < 1.25 * one.p99_ttft_s, one.name


# -------------------------------------------------------------------- who is passed for ever


@pytest.mark.parametrize("policy", PolicyName)
def test_a_class_below_its_minimum_share_passes_a_blocked_head_so_often_and_no_more(
    policy: PolicyName,
) -> None:
    """The stream never has its eight slots, and leaves too few blocks for the long prompt."""
    classes = (ServiceClass(name="stream", min_running_share=0.5), ServiceClass(name="long"))
    arrivals = merged(
        every(0.25, 240, 160, 40, class_name="stream"),
        every(0.0, 1, 1200, 10, at_s=3.0, class_name="long"),
    )
    made = config(policy, classes, ageing_s=5.0, num_blocks=100, max_model_len=1600, max_passes=4)
    result = simulate(made, arrivals, COST, until_s=60.0)
    (head,) = of_class(result, "long")
    assert head.started_at is not None
    assert head.num_passed <= 4
    passers = [
        each
        for each in of_class(result, "stream")
        if each.arrival.at_s > 3.0 and (each.started_at or 99.0) < head.started_at
    ]
    assert len(passers) <= 4
    assert head.is_finished


def test_eight_heads_that_lack_blocks_stop_nobody_behind_them() -> None:
    arrivals = [
        *every(0.0, 1, 8500, 600),
        *every(0.0, 8, 8500, 10, at_s=0.01),
        *every(0.5, 16, 50, 10, at_s=1.0),
    ]
    made = config(num_blocks=1000, max_model_len=16_000, max_num_batched_tokens=2048)
    result = simulate(made, arrivals, COST)
    heads, short = list(result.requests[1:9]), list(result.requests[9:])
    assert min(ttfts(heads)) > 10.0, "they were not blocked"
    assert max(ttfts(short)) < 0.5


def test_an_aged_low_request_gets_its_first_token_in_time_under_endless_high_ones() -> None:
    """A slot alone is nothing: it has one at once, and its prompt is behind all of the stream's."""
    classes = (ServiceClass(name="high", priority=0), ServiceClass(name="low", priority=1))
    arrivals = merged(
        every(1 / 9, 9 * 60, 1000, 2, class_name="high"),  # more than can be computed
        every(0.0, 1, 3000, 4, at_s=1.0, class_name="low"),
    )
    made = config(PolicyName.PRIORITY, classes, ageing_s=10.0)
    result = simulate(made, arrivals, COST, until_s=60.0)
    (low,) = of_class(result, "low")
    (bound,) = bounds([low], result, 10.0, Machine(COST, made.limits))
    assert low.ttft_s is not None
    assert 10.0 < low.ttft_s <= bound.first_token_s < 20.0
    assert low.is_finished


@pytest.mark.parametrize("policy", [PolicyName.FCFS, PolicyName.PRIORITY])
@pytest.mark.parametrize("max_preemptions", [0, 1, 3])
def test_best_effort_work_that_gave_way_as_often_as_it_must_stops_nobody(
    max_preemptions: int, policy: PolicyName
) -> None:
    """Twelve long answers, which together want 2.5 times the pool."""
    classes = (
        ServiceClass(name="interactive", priority=0, weight=8),
        ServiceClass(name="batch", priority=1, best_effort=True),
    )
    made = config(policy, classes, num_blocks=512, max_num_seqs=32, max_preemptions=max_preemptions)
    batch = every(0.0, 12, 200, 1500, class_name="batch")
    interactive = chats(3.0, 60.0, class_name="interactive")

    def waits(arrivals: list[Arrival]) -> list[float]:
        result = simulate(made, arrivals, COST, until_s=80.0)
        assert all(each.token_times for each in of_class(result, "batch")[:1])
        return ttfts(of_class(result, "interactive"))

    alone, beside = waits(interactive), waits(merged(batch, interactive))
    assert quantile(beside, 0.5) < quantile(alone, 0.5) + 1.0
    assert quantile(beside, 0.99) < quantile(alone, 0.99) + 3.0


# -------------------------------------------------------------------- prompts among others


@pytest.mark.parametrize(("num_long", "short_tokens"), [(6, 200), (2, 600)])
def test_fewer_long_prompts_at_once_do_short_ones_no_harm(num_long: int, short_tokens: int) -> None:
    arrivals = [*every(0.0, num_long, 20_000, 5), *every(0.25, 80, short_tokens, 20, at_s=0.1)]

    def p99(most: int | None) -> float:
        made = config(
            num_blocks=20_000,
            max_num_seqs=64,
            max_num_batched_tokens=512,
            long_prefill_threshold_tokens=1024,
            max_long_partial_prefills=most,
        )
        cost = StepCosts(base_s=0.01, prefill_token_s=0.0001, decode_s=0.0003)
        return quantile(ttfts(list(simulate(made, arrivals, cost).requests[num_long:])), 0.99)

    assert p99(1) <= p99(None)


@pytest.mark.parametrize("batching", [Batching.DYNAMIC, Batching.CONTINUOUS])
def test_endless_prompts_do_not_starve_a_decode(batching: Batching) -> None:
    """Padded prefill steps let decodes wait, and here the next prompt is there always."""
    arrivals = [*every(0.0, 1, 100, 50), *every(1 / 12, 12 * 30, 700, 1, at_s=0.05)]
    result = simulate(config(batching=batching), arrivals, COST, until_s=30.0)
    chat = result.requests[0]
    assert chat.is_finished
    longest_step_s = 0.02 + 1024 * 0.0001 + 16 * 0.0005
    assert max(chat.gaps_s()) < 5 * longest_step_s


@pytest.mark.parametrize("policy", [PolicyName.FCFS, PolicyName.SLO])
def test_a_hold_leaves_time_for_the_promised_first_token(policy: PolicyName) -> None:
    chat = ServiceClass(name="chat", ttft_target_s=0.5, max_waiting_time_s=2.0)
    made = config(policy, (chat,), costs=COST, max_num_seqs=64)
    arrivals = chats(1.0, 100.0, (100, 200), class_name="chat")
    (report,) = report_by_class(simulate(made, arrivals, COST), (chat,))
    assert report.attained >= 0.95
    assert report.median_ttft_s > 0.3, "nobody was held"
