"""Plans hold on what they did not know: ``python -m benchmarks.planning``, in short."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest
from benchmarks.plans.halves import PoissonDays, dispersion, halves
from benchmarks.plans.law import drawn_day, kept
from benchmarks.plans.proof import Planned, edges, judged, planned
from benchmarks.simulation import machine

from headway.planning.chance import Chance
from headway.planning.days import Days, RecordedDays
from headway.planning.load import Load
from headway.planning.trial import Aim, Candidate, DayResult, TrialResult
from headway.planning.trials import Terms
from headway.profiles.builtin import LLAMA_7B
from headway.workload import Targets, Workload, WorkloadError

TARGETS = Targets(ttft_s=1.0, tpot_s=0.1)
RATE, DAY_S, NUM_DAYS = 2.0, 60.0, 20


def both(name: str) -> tuple[Workload, Workload]:
    try:
        return halves(name, RATE, TARGETS)
    except WorkloadError as error:
        pytest.skip(str(error))


def plan(recording: Workload, days: Days) -> Planned:
    found = planned(recording, days, Terms(num_days=NUM_DAYS), lambda _: None)
    assert found is not None
    return found


def held_out(found: Planned, other: Workload) -> Chance:
    return judged(found.candidate, RecordedDays(other, DAY_S), NUM_DAYS, 99).chance


@pytest.mark.parametrize("name", ["code", "conversation"])
def test_halves_have_the_rate_and_keep_their_bursts(name: str) -> None:
    for half in both(name):
        assert len(half.arrivals) / half.duration_s == pytest.approx(RATE, rel=1e-3)
        # where a day is made of two pieces some have a burst and some have none
        drawn = fmean(dispersion(day, 10.0) for day in RecordedDays(half).draw(8, 0))
        assert drawn == pytest.approx(dispersion(half, 10.0), rel=0.5)
        poisson = fmean(dispersion(day, 10.0) for day in PoissonDays(half, 500.0).draw(8, 0))
        assert poisson == pytest.approx(1.0, abs=0.4)


@pytest.mark.slow
def test_traces_of_one_mean_rate_get_different_plans_and_poisson_under_sizes_bursts() -> None:
    (own, other), (calm, calm_other) = both("code"), both("conversation")
    bursty = plan(own, RecordedDays(own, DAY_S))
    quiet = plan(calm, RecordedDays(calm, DAY_S))
    forgetful = plan(own, PoissonDays(own, DAY_S))
    assert bursty.setup.instances >= 2 * quiet.setup.instances
    assert forgetful.setup.instances < bursty.setup.instances
    for kept_plan, half in ((bursty, other), (quiet, calm_other)):
        assert held_out(kept_plan, half).interval()[1] >= 0.95
    assert held_out(forgetful, other).interval()[1] < 0.95


@pytest.mark.slow
def test_limits_promised_from_long_recordings_of_a_known_law_hold_on_new_days() -> None:
    found = kept(20, 3, 8, num_days=20)
    assert found.twice.of == 3 * 8
    assert found.twice.interval()[1] >= 0.95
    assert found.twice.held >= found.once.held - 2
    brief = kept(1, 3, 8, num_days=20)
    assert brief.twice.held < found.twice.held


def test_a_law_draws_the_same_day_for_a_seed() -> None:
    assert drawn_day("a") == drawn_day("a") != drawn_day("b")


def result(figures: Sequence[float | None]) -> TrialResult:
    aim, load = Aim("default", "ttft", 1.0), Load(**dict.fromkeys(Load.__slots__, 0))
    days = tuple(DayResult({aim: each}, load) for each in figures)
    return TrialResult(Candidate(machine(LLAMA_7B), 1), days)  # nothing is simulated


def test_the_edge_is_where_one_more_day_holds_as_promised() -> None:
    days = [float(n) for n in range(1, 41)]
    (edge,) = edges(result(days), result([38.5, 39.0, 39.5, None]), 0.95)
    assert edge.limit_s == 39.0
    assert edge.limit_s == min(d for d in days if Chance(int(d), 40).of_next >= 0.95)
    assert edge.chance == Chance(3, 4)  # nobody came on the last one, and nobody waited
    assert edges(result(days[:18]), result(days), 0.95) == []  # too few days to promise that
