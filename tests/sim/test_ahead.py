"""Steps taken at once: every plan, block id and record is that of steps taken one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from random import Random

import pytest
import small_engine
from small_engine import limits

from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, PredictorName, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import PreemptionChoice, SchedulerLimits
from headway.core.lockstep import Lockstep
from headway.core.memory import Memory
from headway.core.plan import Idle, SampledToken, SequenceId, StepPlan, StepResult
from headway.core.repeat import Repeated
from headway.core.request import PromptHashes, Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.journal import Journal
from headway.errors import InvariantError
from headway.profiles.shape import StepShape
from headway.sim import SimulationResult, replica, simulate
from headway.sim.fleet import simulate_fleet
from headway.sim.replica import Machine
from headway.sim.requests import request_of
from headway.sim.routers import RouterName, make_router
from headway.workload import Arrival, Conduct, Workload

COST = StepCosts(base_s=0.02, prefill_token_s=0.001, decode_s=0.003)


class ByContext:
    """Costs that grow with the context, so that each step takes another time."""

    def seconds(self, shape: StepShape) -> float:
        return COST.seconds(shape) + 1e-5 * shape.decode_context + 1e-6 * shape.longest_decode


class WithJournal:
    """What a simulation gave, and all that it wrote down."""

    def __init__(self, config: SchedulerConfig, arrivals: list[Arrival], **more: object) -> None:
        stream = _Kept()
        journal = Journal(stream, Scheduler(config))
        self.result: SimulationResult = simulate(
            config, arrivals, ByContext(), journal=journal, sample_every_s=0.5, **more
        )  # type: ignore[arg-type]
        journal.close()
        self.log = stream.text


class _Kept(BytesIO):
    text = b""

    def close(self) -> None:
        self.text = self.getvalue()
        super().close()


def outcomes(result: SimulationResult) -> list[object]:
    """Return everything that a simulation tells."""
    steps = result.steps
    series = (steps.began_at, steps.elapsed_s, steps.num_sequences, steps.num_tokens)
    return [result.requests, series, result.samples, result.end_s, result.statistics]


def assert_same_records(config: SchedulerConfig, arrivals: list[Arrival], **more: object) -> None:
    """Compare without a journal, for which all are brought up to date after each turn."""
    ends: list[tuple[int, ...]] = []
    seen: list[list[object]] = []
    for leaps in (False, True):
        last: list[Scheduler] = []

        class Kept(Scheduler):
            def __init__(self, *given: object) -> None:
                super().__init__(*given)  # type: ignore[arg-type]
                last.append(self)  # noqa: B023

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replica, "Scheduler", Kept)
            result = simulate(config, arrivals, ByContext(), leaps=leaps, **more)  # type: ignore[arg-type]
        last[0].check()
        ends.append(last[0].work.memory.pool.free_ids())
        seen.append(outcomes(result))
    assert seen[0] == seen[1]
    assert ends[0] == ends[1], "blocks were given and freed in another order"


def assert_same(config: SchedulerConfig, arrivals: list[Arrival], **more: object) -> WithJournal:
    """Run both ways and compare, line by line first, since lines say more than a difference."""
    slow = WithJournal(config, arrivals, leaps=False, **more)
    fast = WithJournal(config, arrivals, leaps=True, **more)
    pairs = zip(fast.log.splitlines(), slow.log.splitlines(), strict=False)
    for number, (mine, other) in enumerate(pairs, 1):
        assert mine == other, f"line {number}"
    assert len(fast.log) == len(slow.log)
    assert outcomes(fast.result) == outcomes(slow.result)
    assert_same_records(config, arrivals, sample_every_s=1e6, **more)
    return fast


# ------------------------------------------------------------------ any workload, any policy

CLASSES = (
    ServiceClass(
        name="a", weight=4, priority=0, ttft_target_s=1.0, tpot_target_s=0.1, max_running_share=0.7
    ),
    ServiceClass(name="b", weight=1, priority=1, max_queue_requests=4, queue_timeout_s=3.0),
    ServiceClass(name="c", priority=2, best_effort=True, min_running_share=0.2),
)
RESERVED = (
    ServiceClass(name="a", reserved_slots=2, reserved_blocks=12),
    ServiceClass(name="b", weight=2, request_timeout_s=4.0),
    ServiceClass(name="c", max_waiting_time_s=0.3, max_output_tokens=9),
)
PLAIN = tuple(ServiceClass(name=name, priority=number) for number, name in enumerate("abc"))
ALONE = (ServiceClass(name="a", ttft_target_s=2.0),)


def random_limits(random: Random) -> SchedulerLimits:
    num_seqs = random.choice((2, 4, 8, 16))
    num_swap_blocks = random.choice((0, 30))
    modes = list(PreemptionChoice) if num_swap_blocks else [PreemptionChoice.RECOMPUTE]
    return SchedulerLimits(
        num_blocks=random.choice((24, 40, 80, 400)),
        block_size=random.choice((1, 4, 8)),
        max_model_len=96,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=random.choice((num_seqs, 24, 64)) + num_seqs,
        max_waiting_time_s=random.choice((0.0, 0.0, 0.2)),
        max_passes=random.choice((0, 2, 16)),
        watermark_blocks=random.choice((0, 2)),
        enable_prefix_sharing=random.random() < 0.5,
        num_swap_blocks=num_swap_blocks,
        preemption_mode=random.choice(modes),
        max_plans_in_flight=random.choice((1, 1, 1, 2)),
    )


def random_arrivals(random: Random, count: int, names: Sequence[str]) -> list[Arrival]:
    now, arrivals = 0.0, []
    pace = random.choice((0.02, 0.2, 0.6))
    for _ in range(count):
        now += random.expovariate(1 / pace)
        output = random.choice((1, 2, 5, 20, 50))
        prompt = random.randint(1, 40)
        hashes = PromptHashes(8, tuple(range(prompt // 8))) if random.random() < 0.4 else None
        arrivals.append(
            Arrival(
                at_s=now,
                prompt_tokens=prompt,
                output_tokens=output,
                max_tokens=random.choice((None, output, 50)),
                class_name=random.choice(names),
                tenant=random.choice(("x", "y")),
                hashes=hashes,
            )
        )
    return arrivals


@pytest.mark.parametrize("policy", list(PolicyName))
@pytest.mark.parametrize("seed", range(16))
def test_a_random_workload_is_planned_alike(policy: PolicyName, seed: int) -> None:
    random = Random(f"{policy}:{seed}")
    limits = random_limits(random)
    classes = random.choice((CLASSES, PLAIN, ALONE, ALONE))
    if random.random() < 0.2 and limits.num_blocks > 24 and limits.max_num_seqs > 4:
        classes = RESERVED
    predictor = random.choice(list(PredictorName))
    config = SchedulerConfig(
        limits=limits,
        policy=PolicyConfig(name=policy, predictor=predictor, ageing_s=2.0),
        classes=classes,
    )
    assert_same(config, random_arrivals(random, 40, "abc"[: len(classes)]))


def test_who_goes_first_among_tenants_does_not_depend_on_how_often_it_is_asked() -> None:
    random = Random("leaving fair:2")
    config = SchedulerConfig(
        limits=random_limits(random), policy=PolicyConfig(name=PolicyName.FAIR)
    )
    assert_same(config, random_arrivals(random, 60, ["default"]))


@pytest.mark.parametrize("seed", [302, 592])
def test_leaps_end_where_a_tenant_that_was_passed_gets_to_go_first(seed: int) -> None:
    """All slots are taken, and who goes first may displace nobody; then another one does."""
    random = Random(f"heads {seed}")
    size = SchedulerLimits(
        num_blocks=random.choice((20, 24, 30)),
        block_size=4,
        max_model_len=80,
        max_num_seqs=random.choice((2, 3, 4, 5)),
        max_num_batched_tokens=64,
        max_passes=16,
    )
    weights = (("x", random.choice((1.0, 2.0, 4.0))),)
    policy = PolicyConfig(name=PolicyName.FAIR, tenant_weights=weights)
    now, arrivals = 0.0, []
    for _ in range(30):
        now += random.expovariate(4)
        prompt, output = random.choice((1, 2, 3, 30, 40, 50)), random.choice((2, 10, 28))
        tenant = random.choice("xy")
        arrivals.append(arrival(at_s=now, prompt=prompt, output=output, tenant=tenant))
    assert_same(SchedulerConfig(limits=size, policy=policy), arrivals)


@pytest.mark.parametrize("policy", list(PolicyName))
def test_clients_that_leave_leave_alike(policy: PolicyName) -> None:
    random = Random(f"leaving {policy}")
    config = SchedulerConfig(limits=limits(num_blocks=40), policy=PolicyConfig(name=policy))
    arrivals = [
        replace(each, conduct=random_conduct(random))
        for each in random_arrivals(random, 60, ["default"])
    ]
    workload = Workload(arrivals=arrivals, loops=(), duration_s=1e9, targets={})
    seen = []
    for leaps in (False, True):
        machine = Machine(config=config, cost=ByContext(), leaps=leaps, sample_every_s=1e6)
        router = make_router(RouterName.ROUND_ROBIN, 1, classes=config.classes, num_kv_tokens=1)
        fleet = simulate_fleet([machine], router, workload)
        seen.append([fleet.requests, outcomes(fleet.replicas[0])])
    assert seen[0] == seen[1]
    assert {each.outcome for each in fleet.requests} >= {"cancelled", "finished"}


def random_conduct(random: Random) -> Conduct | None:
    """Return how a client leaves, if it does."""
    if random.random() < 0.6:
        return None
    return Conduct(
        leaves_after_s=random.choice((None, 0.5, 2.0)),
        leaves_after_tokens=random.choice((None, 3, 10)),
    )


def test_who_begins_to_decode_twice_without_a_step_between_has_one_place() -> None:
    """It gives way in the very step for which it joined, and alone: no step is counted."""
    lockstep = Lockstep(Memory(limits(block_size=4), ()))
    lockstep.source = Known([1] * 9)
    scheduler = started(block_size=4)
    (sequence,) = scheduler.work.decoding.values()
    for _ in range(2):
        assert lockstep.join([sequence])
        lockstep.leave(sequence)
    assert lockstep.join([sequence])
    assert lockstep.pass_due() == []
    lockstep.advance(2)
    assert lockstep.pass_due() == [sequence]


# ------------------------------------------------------------------ single cases


def arrival(at_s: float = 0.0, output: int = 30, **more: object) -> Arrival:
    return small_engine.arrival(at_s, output=output, **more)


def test_host_time_passes_in_each_step() -> None:
    config = SchedulerConfig(limits=limits())
    both = [arrival(), arrival(at_s=0.5, output=12)]
    assert_same(config, both, host=lambda shape: 0.001 * shape.num_sequences)


def test_an_end_between_two_steps_is_kept() -> None:
    config = SchedulerConfig(limits=limits())
    assert_same(config, [arrival(output=100)], until_s=1.0)


def test_the_last_blocks_are_given_in_the_same_order() -> None:
    config = SchedulerConfig(limits=limits(num_blocks=26, block_size=1))
    both = assert_same(config, [arrival(prompt=3, output=n, max_tokens=n) for n in (14, 16)])
    assert both.result.statistics.num_preemptions > 0


def test_all_who_decode_may_expire_at_once() -> None:
    classes = (ServiceClass(name="default", request_timeout_s=1.0),)
    config = SchedulerConfig(limits=limits(), classes=classes)
    both = assert_same(config, [arrival(output=100), arrival(at_s=5.0, output=100)])
    assert both.result.statistics.num_expired == 2


def num_turns(config: SchedulerConfig, arrivals: list[Arrival]) -> int:
    """Return how often the scheduler was asked for a plan."""
    calls: list[float] = []

    class Counted(Scheduler):
        def schedule(self, now: float) -> StepPlan | Idle:
            calls.append(now)
            return super().schedule(now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "Scheduler", Counted)
        simulate(config, arrivals, COST, sample_every_s=1e6)
    return len(calls)


def test_few_turns_are_needed() -> None:
    config = SchedulerConfig(limits=limits(num_blocks=400, max_model_len=1200))
    assert num_turns(config, [arrival(output=1000)]) < 10


def test_sequences_of_one_request_are_taken_step_by_step() -> None:
    def twins(number: int, each: Arrival, max_model_len: int) -> Request:
        return replace(request_of(number, each, max_model_len), n=2)

    config = SchedulerConfig(limits=limits(enable_prefix_sharing=True))
    both = assert_same(config, [arrival(output=9)], make_request=twins)
    times = both.result.requests[0].token_times
    assert len(times) == 18
    assert list(times) == sorted(times)


# ------------------------------------------------------------------ the scheduler's side of it


def started(**changes: object) -> Scheduler:
    """Return a scheduler with one request that decodes."""
    scheduler = Scheduler(SchedulerConfig(limits=limits(**changes)))
    sampling = SamplingParams(max_tokens=20, stop_token_ids=(0,))
    scheduler.submit(Request(request_id="r", prompt_token_ids=(5,) * 6, sampling=sampling), 0.0)  # type: ignore[arg-type]
    plan = scheduler.schedule(0.0)
    assert isinstance(plan, StepPlan)
    sequence_id = plan.slices[0].sequence_id
    scheduler.apply(StepResult(plan.step_id, {sequence_id: SampledToken(1)}), 1.0)
    return scheduler


def test_it_says_how_many_steps_are_alike() -> None:
    scheduler = started()
    scheduler.work.lockstep.source = Known([])
    steps = scheduler.repeatable(1.0)
    assert steps is not None
    assert (steps.most, steps.released, steps.first_step_id) == (19, (), 1)


def test_nothing_is_alike_with_two_plans_in_flight() -> None:
    assert started(max_plans_in_flight=2).repeatable(1.0) is None


def test_nothing_is_alike_while_somebody_may_start() -> None:
    scheduler = started()
    request = Request(request_id="s", prompt_token_ids=(7,), sampling=SamplingParams(max_tokens=1))  # type: ignore[arg-type]
    scheduler.submit(request, 1.0)
    assert scheduler.repeatable(1.0) is None


class Known:
    """Knows in advance what sequences draw."""

    def __init__(self, tokens: list[int], num_left: int = 1000) -> None:
        self.tokens = tokens
        self._num_left = num_left

    def num_left(self, _: SequenceId) -> int:
        return self._num_left

    def draw(self, _: SequenceId, count: int) -> list[int]:
        drawn, self.tokens = self.tokens[:count], self.tokens[count:]
        return drawn


def repeated(num_steps: int) -> Repeated:
    return Repeated(1.0, [2.0 + step for step in range(num_steps)], [1.0] * num_steps)


def test_a_stop_token_between_is_a_bug() -> None:
    scheduler = started()
    scheduler.work.lockstep.source = Known([1, 0, 1])
    assert scheduler.repeatable(1.0) is not None
    scheduler.repeat(repeated(3))
    with pytest.raises(InvariantError, match="stops between"):
        scheduler.check()


def test_more_steps_than_there_are_is_a_bug() -> None:
    scheduler = started()
    scheduler.work.lockstep.source = Known([1] * 30, num_left=2)
    steps = scheduler.repeatable(1.0)
    assert steps is not None
    assert steps.most == 2
    with pytest.raises(InvariantError, match="ends before 3 steps"):
        scheduler.repeat(repeated(3))


def test_who_is_known_to_have_stopped_is_not_taken_along() -> None:
    scheduler = started()
    scheduler.work.lockstep.source = Known([], num_left=0)
    assert scheduler.repeatable(1.0) is None
    assert not scheduler.work.lockstep.members


def test_blocks_are_there_after_the_steps() -> None:
    scheduler = started()
    scheduler.work.lockstep.source = Known([1] * 6)
    assert scheduler.repeatable(1.0) is not None
    updates, events = scheduler.repeat(repeated(6))
    assert [(each.first_index, len(each.block_ids)) for each in updates] == [(2, 1)]
    assert events == ()
    scheduler.check()
    assert scheduler.statistics().num_steps == 7


def test_who_leaves_the_lockstep_is_up_to_date() -> None:
    scheduler = started()
    scheduler.work.lockstep.source = Known([1, 2, 3, 4, 5])
    assert scheduler.repeatable(1.0) is not None
    scheduler.repeat(repeated(3))
    (sequence,) = scheduler.work.decoding.values()
    assert sequence.output_token_ids == [1]
    scheduler.repeat(repeated(2))
    scheduler.cancel(sequence.request_id, 9.0, "client_left")
    assert sequence.output_token_ids == [1, 1, 2, 3, 4, 5]
    scheduler.check()


def test_work_that_lacks_blocks_does_not_stop_the_leaps() -> None:
    """The second one waits for blocks until the first ends, and is asked after once."""
    config = SchedulerConfig(limits=limits(num_blocks=30, max_model_len=120))
    both = [arrival(prompt=10, output=n, max_tokens=n) for n in (80, 100)]
    both[1] = replace(both[1], prompt_tokens=100, output_tokens=10, max_tokens=10)
    assert_same(config, both)
    assert num_turns(config, both) < 12


# ------------------------------------------------------------------ a pool that is full


CROWDED = {
    "plain": {},
    "with a watermark": {"watermark_blocks": 4},
    "few may pass": {"max_passes": 1},
    "nobody may pass": {"max_passes": 0},
    "with swap": {"num_swap_blocks": 60, "preemption_mode": PreemptionChoice.SWAP},
    "with a small swap space": {"num_swap_blocks": 12, "preemption_mode": PreemptionChoice.AUTO},
    "with shared prefixes": {"enable_prefix_sharing": True},
    "in small steps": {"max_num_batched_tokens": 24, "enable_prefix_sharing": True},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 256},
    "few in parts": {"max_partial_prefills": 1, "max_num_batched_tokens": 24},
}


def crowd(seed: int, names: str = "a") -> list[Arrival]:
    """Return more work than the pool of ``limits()`` holds, some of it with common beginnings."""
    random, now, arrivals = Random(seed), 0.0, []
    for _ in range(60):
        now += random.expovariate(3.0)
        prompt, family = random.randint(1, 90), random.randrange(4)
        hashes = PromptHashes(8, tuple(100 * family + n for n in range(prompt // 8)))
        arrivals.append(
            Arrival(
                at_s=now,
                prompt_tokens=prompt,
                output_tokens=random.choice((3, 10, 35)),
                class_name=random.choice(names),
                hashes=hashes if random.random() < 0.7 else None,
            )
        )
    return arrivals


@pytest.mark.parametrize("changes", CROWDED.values(), ids=CROWDED)
@pytest.mark.parametrize("seed", range(3))
def test_work_that_waits_for_blocks_is_planned_alike(changes: dict[str, object], seed: int) -> None:
    config = SchedulerConfig(limits=limits(max_num_seqs=16, **changes), classes=ALONE)
    both = assert_same(config, crowd(seed))
    assert both.result.statistics.num_preemptions > 0


@pytest.mark.parametrize("classes", [PLAIN, RESERVED], ids=["alike", "reserved"])
@pytest.mark.parametrize("policy", list(PolicyName))
def test_classes_that_wait_for_blocks_are_planned_alike(
    policy: PolicyName, classes: tuple[ServiceClass, ...]
) -> None:
    config = SchedulerConfig(
        limits=limits(max_num_seqs=16), policy=PolicyConfig(name=policy), classes=classes
    )
    assert_same(config, crowd(7, "abc"))


def test_who_leaves_a_full_pool_to_nobody_costs_no_plan() -> None:
    """The short ones end one after the other; what they leave is too little for who waits."""
    config = SchedulerConfig(limits=limits(num_blocks=120, max_model_len=480))
    short = [arrival(prompt=8, output=n, max_tokens=n) for n in range(40, 70, 5)]
    waiting = [arrival(at_s=0.1, prompt=450, output=8, max_tokens=8)]
    assert_same(config, short + waiting)
    assert num_turns(config, short + waiting) < 12
