"""Calibration, and the check of one's own engine, with a simulated executor in the engine's place.

Its clock is virtual, so that a minute of load takes no time, and its costs are known.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from math import sin
from random import Random

import pytest

from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.plan import StepPlan, StepResult
from headway.engine.clock import VirtualClock
from headway.errors import UsageError
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.errors import ProfileError
from headway.profiles.fitted import FittedCosts
from headway.profiles.profile import Profile
from headway.profiles.shape import Chunk, StepCost, StepShape
from headway.sim.calibration import Calibration, calibrate, passes
from headway.sim.live import LiveEngine
from headway.sim.own import LoadVerdict, judge, saturating_rate
from headway.sim.own_engine import OwnEngine
from headway.sim.records import RequestRecord
from headway.sim.sharing import Stopwatch, half_of, in_turn
from headway.workload import Arrival, poisson_arrivals

LIMITS = SchedulerLimits(
    num_blocks=2000, block_size=16, max_model_len=1024, max_num_seqs=32, max_num_batched_tokens=512
)
CONFIG = SchedulerConfig(limits=LIMITS)


class Truth:
    """What steps really cost."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.was_collecting: set[bool] = set()

    def seconds(self, shape: StepShape) -> float:
        self.was_collecting.add(gc.isenabled())
        pairs = sum(n * (cached + (n + 1) / 2) for cached, n in shape.chunks)
        return self.factor * (
            0.004
            + 0.0002 * shape.num_prefill_tokens
            + 1e-7 * pairs
            + 0.0006 * shape.num_decodes
            + 1e-6 * shape.decode_context
        )


def executor_of(cost: StepCost, clock: VirtualClock) -> SimulatedExecutor:
    return SimulatedExecutor(
        cost, clock, num_blocks=LIMITS.num_blocks, block_size=16, vocab_size=100
    )


def engine(cost: StepCost, config: SchedulerConfig = CONFIG) -> LiveEngine:
    clock = VirtualClock()
    return LiveEngine(config, executor_of(cost, clock), clock, vocab_size=100)


def calibrated(live: LiveEngine, most_s: float = 60.0) -> Calibration:
    return calibrate(live, LIMITS, name="test", most_s=most_s, longest=600)


# ------------------------------------------------------------------ calibration


def test_known_costs_are_found() -> None:
    found = calibrated(engine(Truth()))
    device = found.profile.device
    truth = Truth()
    for shape in (
        StepShape((), 1, 100, 100, 100),
        StepShape((), 20, 4000, 300, 100),
        StepShape((Chunk(0, 300),)),
    ):
        assert device.seconds(shape) == pytest.approx(truth.seconds(shape), rel=0.01)
    assert found.num_steps > 200


def test_it_says_its_error_and_its_range() -> None:
    fitted = calibrated(engine(Truth())).profile.device
    assert isinstance(fitted, FittedCosts)
    assert fitted.error.p90 < 0.01
    low, high = fitted.ranges["decodes"]
    assert low == 0
    assert high >= LIMITS.max_num_seqs - 1
    assert fitted.beyond(StepShape((), 200, 200, 1, 1))


def test_it_ends_in_time_and_says_that_it_was_cut_short() -> None:
    live = engine(Truth(factor=8.0))
    found = calibrated(live, most_s=20.0)
    assert 20.0 <= found.seconds < 23.0
    assert not found.is_complete
    assert calibrated(engine(Truth(factor=0.1)), most_s=100.0).is_complete


def test_too_little_time_is_refused() -> None:
    with pytest.raises(ProfileError, match="too few"):
        calibrated(engine(Truth()), most_s=0.01)


def test_every_round_fits_into_the_pool() -> None:
    tight = SchedulerLimits(
        num_blocks=64, block_size=16, max_model_len=512, max_num_seqs=16, max_num_batched_tokens=64
    )
    for each in chain.from_iterable(islice(passes(tight, 512), 5)):
        assert each.num_requests * (each.prompt_tokens + each.output_tokens) <= 64 * 16 * 1.1
        assert each.prompt_tokens + each.output_tokens <= 512


def test_a_live_engine_can_run_again() -> None:
    live = engine(Truth())
    first = live.run([Arrival(at_s=0.0, prompt_tokens=5, output_tokens=3)])
    live.clock.sleep(100.0)
    again = live.run([Arrival(at_s=0.0, prompt_tokens=5, output_tokens=3)])
    assert [each.is_finished for each in (*first, *again)] == [True, True]
    assert list(again[0].token_times) == pytest.approx(list(first[0].token_times))


# ------------------------------------------------------------------ the check


def lengths(seed: int = 3) -> list[Arrival]:
    random = Random(seed)
    return poisson_arrivals(
        1.0,
        ((random.randint(20, 200), random.randint(5, 60)) for _ in range(1500)),
        Random(seed + 1),
    )


def own_engine(cost: StepCost, clock: VirtualClock | None = None) -> OwnEngine:
    clock = clock or VirtualClock()
    executor = executor_of(cost, clock)
    return OwnEngine(executor, CONFIG, clock, name="test", vocab_size=100, longest=600)


def judged(
    own: OwnEngine,
    seen: Callable[[Profile], Profile] = lambda profile: profile,
    repetitions: int = 3,
) -> tuple[LoadVerdict, ...]:
    def measure(
        arrivals: Sequence[Arrival], others: Sequence[Arrival]
    ) -> tuple[Sequence[RequestRecord], Profile]:
        records, profile = own.measure(arrivals, others)
        return records, seen(profile)

    return judge(
        own.config,
        lambda number: lengths(2 * number),
        calibrate=lambda: own.calibrate(60.0),
        measure=measure,
        repetitions=repetitions,
        duration_s=40.0,
    )


def test_an_engine_that_is_as_calibrated_passes() -> None:
    cost = Truth()
    half, most = judged(own_engine(cost))
    assert cost.was_collecting == {False}
    assert (half.share, most.share) == (0.5, 0.9)
    assert list(half.rates) == pytest.approx([rate * 5 / 9 for rate in most.rates], rel=0.15)
    assert len(set(half.rates)) == 3, "each repetition has other requests"
    assert all(row.holds for each in (half, most) for row in each.rows)
    assert {row.figure.key for row in half.rows} >= {"ttft_p99", "tpot_p50", "output_throughput"}


def test_an_engine_that_is_slower_than_calibrated_fails() -> None:
    def as_if_quicker(profile: Profile) -> Profile:
        device = profile.device
        assert isinstance(device, FittedCosts)
        costs_s = {name: cost / 1.2 for name, cost in device.costs_s.items()}
        return replace(profile, device=replace(device, costs_s=costs_s))

    verdicts = judged(own_engine(Truth()), as_if_quicker)
    assert not all(row.holds for each in verdicts for row in each.rows)


def test_a_machine_whose_speed_wanders_is_judged_as_it_was() -> None:
    clock = VirtualClock()

    class Wandering(Truth):
        """A third slower and a third faster, by turns of some seconds."""

        def seconds(self, shape: StepShape) -> float:
            return super().seconds(shape) * (1 + sin(clock.now() / 3) / 3)

    for load in judged(own_engine(Wandering(), clock), repetitions=5):
        errors = {row.figure.key: row.error for row in load.rows}
        assert max(map(abs, errors.values())) < 10, errors


def test_the_spread_is_that_of_the_real_runs() -> None:
    cost, factors = Truth(), iter((0.9, 0.9, 1.0, 1.0, 1.1, 1.1))
    own = own_engine(cost)

    def another_speed(profile: Profile) -> Profile:
        cost.factor = next(factors)
        return profile

    half, _ = judged(own, another_speed)
    tpot = next(row for row in half.rows if row.figure.key == "tpot_p50")
    assert tpot.spread > 15
    assert tpot.holds


def test_a_time_in_which_no_request_comes_is_refused() -> None:
    own = own_engine(Truth())
    with pytest.raises(UsageError, match=r"no request comes within 0\.001 s: take more time"):
        judge(
            own.config,
            lengths,
            calibrate=lambda: own.calibrate(20.0),
            measure=own.measure,
            duration_s=0.001,
        )


# ------------------------------------------------------------------ taking turns


def test_each_side_of_an_executor_has_blocks_and_sequences_of_its_own() -> None:
    seen: list[StepPlan] = []
    clock = VirtualClock()
    executor = executor_of(Truth(), clock)

    class Watched:
        def run(self, plan: StepPlan) -> StepResult:
            seen.append(plan)
            return executor.run(plan)

    own = OwnEngine(Watched(), CONFIG, clock, name="test", vocab_size=100, longest=600)
    records, _ = own.measure(lengths()[:30], lengths(5))
    assert all(each.is_finished for each in records)
    blocks: dict[int, set[int]] = {0: set(), 1: set()}
    for plan in seen:
        for update in plan.table_updates:
            blocks[update.sequence_id % 2].update(update.block_ids)
    assert {block % 2 for block in blocks[0]} == {0}
    assert {block % 2 for block in blocks[1]} == {1}
    assert max(*blocks[0], *blocks[1]) < LIMITS.num_blocks
    assert [plan.step_id for plan in seen] == list(range(1, len(seen) + 1))


def test_a_run_does_not_feel_the_turns_of_the_calibration() -> None:
    arrivals = lengths()[:60]
    records, profile = own_engine(Truth()).measure(arrivals, lengths(5))
    alone = engine(Truth(), replace(CONFIG, limits=half_of(LIMITS))).run(arrivals)
    assert [each.token_times[-1] for each in records] == pytest.approx(
        [each.token_times[-1] for each in alone]
    )
    assert "in between" in profile.source


def test_requests_come_later_while_the_machine_is_slower_than_calibrated() -> None:
    cost = Truth()
    own = own_engine(cost)
    own.calibrate(30.0)
    cost.factor = 1.5
    arrivals = lengths()[:60]
    records, _ = own.measure(arrivals, lengths(5))
    last, first = records[-1].arrival.at_s, records[20].arrival.at_s
    assert (last - first) / (arrivals[-1].at_s - arrivals[20].at_s) == pytest.approx(1.5, rel=0.02)


def test_nothing_is_done_in_between_while_a_clock_goes_on() -> None:
    clock = VirtualClock()
    first, second = Stopwatch(clock), Stopwatch(clock)

    def turning(number: int) -> Iterator[float]:
        for _ in range(number):
            clock.sleep(0.1)
            yield 0.1

    in_turn(turning(5), first, turning(1000), second, between=lambda: clock.sleep(7.0))
    assert clock.now() == pytest.approx(1.0 + 5 * 7.0)
    assert first.now() == pytest.approx(0.5)
    assert second.now() == pytest.approx(0.5)


def test_both_have_the_same_time() -> None:
    clock = VirtualClock()
    first, second = Stopwatch(clock), Stopwatch(clock)

    def turning(step_s: float, number: int) -> Iterator[float]:
        for _ in range(number):
            clock.sleep(step_s)
            yield step_s

    in_turn(turning(0.5, 20), first, turning(0.125, 1000), second)
    assert first.now() == pytest.approx(10.0)
    assert second.now() == pytest.approx(10.0)
    assert clock.now() == pytest.approx(20.0)
    clock.sleep(1.0)
    assert first.now() == pytest.approx(10.0)


# ------------------------------------------------------------------ saturation


def test_saturation_does_not_depend_on_the_queue() -> None:
    profile = calibrated(engine(Truth())).profile
    short = SchedulerConfig(limits=replace(LIMITS, max_queue_requests=3))
    assert saturating_rate(short, lengths(), profile) == saturating_rate(CONFIG, lengths(), profile)


def test_saturation_is_what_comes_out_of_a_crowd() -> None:
    live = engine(Truth())
    profile = calibrated(live).profile
    crowd = lengths()[:400]
    real = live.run(
        [
            Arrival(at_s=0.0, prompt_tokens=e.prompt_tokens, output_tokens=e.output_tokens)
            for e in crowd
        ]
    )
    rate = 400 / max(each.ended_at or 0.0 for each in real)
    assert saturating_rate(CONFIG, crowd, profile) == pytest.approx(rate, rel=0.1)
