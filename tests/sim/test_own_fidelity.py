"""Calibration, and the check of one's own engine, with a simulated executor in the engine's place.

Its clock is virtual, so that a minute of load takes no time, and its costs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from random import Random

import pytest

from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.engine.clock import VirtualClock
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.errors import ProfileError
from headway.profiles.fitted import FittedCosts
from headway.profiles.profile import Profile
from headway.profiles.shape import Chunk, StepCost, StepShape
from headway.sim.calibration import Calibration, calibrate, passes
from headway.sim.live import LiveEngine
from headway.sim.own import LoadVerdict, judge, saturating_rate
from headway.workload import Arrival, poisson_arrivals

LIMITS = SchedulerLimits(
    num_blocks=2000, block_size=16, max_model_len=1024, max_num_seqs=32, max_num_batched_tokens=512
)
CONFIG = SchedulerConfig(limits=LIMITS)


class Truth:
    """What steps really cost."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def seconds(self, shape: StepShape) -> float:
        pairs = sum(n * (cached + (n + 1) / 2) for cached, n in shape.chunks)
        return self.factor * (
            0.004
            + 0.0002 * shape.num_prefill_tokens
            + 1e-7 * pairs
            + 0.0006 * shape.num_decodes
            + 1e-6 * shape.decode_context
        )


def engine(cost: StepCost) -> LiveEngine:
    clock = VirtualClock()
    executor = SimulatedExecutor(
        cost, clock, num_blocks=LIMITS.num_blocks, block_size=16, vocab_size=100
    )
    return LiveEngine(CONFIG, executor, clock, vocab_size=100)


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


def lengths() -> list[Arrival]:
    random = Random(3)
    return poisson_arrivals(
        1.0, ((random.randint(20, 200), random.randint(5, 60)) for _ in range(1500)), Random(4)
    )


def judged(live: LiveEngine, profile: Callable[[], Profile]) -> tuple[LoadVerdict, ...]:
    return judge(
        CONFIG, lengths(), calibrate=profile, measure=live.run, repetitions=3, duration_s=40.0
    )


def test_an_engine_that_is_as_calibrated_passes() -> None:
    live = engine(Truth())
    half, most = judged(live, lambda: calibrated(live).profile)
    assert (half.share, most.share) == (0.5, 0.9)
    assert half.rate == pytest.approx(most.rate * 5 / 9)
    assert all(row.holds for each in (half, most) for row in each.rows)
    assert {row.figure.key for row in half.rows} >= {"ttft_p99", "tpot_p50", "output_throughput"}


def test_an_engine_that_became_slower_fails() -> None:
    cost = Truth()
    live = engine(cost)

    def calibrate_and_slow_down() -> Profile:
        cost.factor = 1.0
        profile = calibrated(live).profile
        cost.factor = 1.2
        return profile

    verdicts = judged(live, calibrate_and_slow_down)
    assert not all(row.holds for each in verdicts for row in each.rows)


def test_the_spread_is_that_of_the_real_runs() -> None:
    cost, factors = Truth(), iter((0.9, 1.0, 1.1))
    live = engine(cost)

    def another_speed() -> Profile:
        cost.factor = next(factors)
        return calibrated(live).profile

    half, _ = judged(live, another_speed)
    tpot = next(row for row in half.rows if row.figure.key == "tpot_p50")
    assert tpot.spread > 15
    assert tpot.holds


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
