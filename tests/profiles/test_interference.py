"""A machine that slows down from time to time."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.costs import StepCosts
from headway.profiles.errors import ProfileError
from headway.profiles.interference import (
    Interfered,
    Interference,
    TimedStep,
    costs_of_engine,
    interference_of,
)
from headway.profiles.shape import Chunk, StepShape

DECODE = StepShape((), 1, 10, 10, 10)
PROMPT = StepShape((Chunk(0, 100),))
STEADY = StepCosts(base_s=0.02, prefill_token_s=0.0, decode_s=0.0)


def test_a_step_that_spans_windows_is_slowed_by_each() -> None:
    costs = Interfered(STEADY, Interference(0.03, (1.0, 2.0)))
    assert costs.seconds(DECODE) == pytest.approx(0.02)
    assert costs.seconds(DECODE) == pytest.approx(0.01 + 2 * 0.01)
    assert costs.seconds(DECODE) == pytest.approx(0.01 + 0.015)  # the slow one ends; round again
    assert costs.seconds(DECODE) == pytest.approx(0.015 + 2 * 0.005)


def slow_for(steps: int, factor: float, of: int = 400) -> Interference:
    """Return what is seen where the middle ``steps`` of so many took longer."""
    before = (of - steps) // 2
    measured = [0.02] * before + [0.02 * factor] * steps + [0.02] * (of - before - steps)
    found = interference_of(TimedStep(False, 0.02, each) for each in measured)
    assert found is not None
    return found


@given(st.lists(st.floats(0.005, 0.1), min_size=1, max_size=300))
@example([0.25, *[0.125] * 5, 0.09375, 0.03125, 0.0625, 0.25, 0.25])
def test_every_window_has_a_factor_between_the_least_and_the_most_seen(
    measured: list[float],
) -> None:
    found = interference_of(TimedStep(False, 0.02, each) for each in measured)
    num_windows = int(sum(measured) / 0.05 + 1e-9)
    if found is None:
        assert sum(measured) < 0.05 + 1e-9
        return
    assert abs(len(found.factors) - num_windows) <= 1
    ratios = [each / 0.02 for each in measured]
    assert min(found.factors) >= max(min(ratios), 0.2) - 0.001
    assert max(found.factors) <= max(ratios) + 0.001


def test_a_machine_that_became_slower_stays_slower() -> None:
    found = slow_for(steps=200, factor=1.2)
    start, middle = found.factors[5], found.factors[len(found.factors) // 2]
    assert start == pytest.approx(1.0, abs=0.01)
    assert middle == pytest.approx(1.2, abs=0.01)


def test_a_moment_that_stands_out_is_kept_as_it_was() -> None:
    found = slow_for(steps=5, factor=2.0)
    slow = [each for each in found.factors if each > 1.5]
    assert 2 <= len(slow) <= 5
    assert max(found.factors) == pytest.approx(2.0, abs=0.1)


def test_what_a_fit_misses_by_the_kind_of_step_is_no_matter_of_the_moment() -> None:
    """Long steps are 5 % quicker than expected, and short ones slower; both come all the time."""
    steps = [(0.1, 0.095), *[(0.01, 0.0105)] * 10] * 100
    found = interference_of(TimedStep(False, *each) for each in steps)
    assert found is not None
    inner = found.factors[20:-20]
    assert max(inner) - min(inner) < 0.02


def test_what_slows_down_one_kind_of_step_is_no_matter_of_the_other() -> None:
    """Half a minute in which steps of many rows are slow, between two in which they are not."""
    slow = [1.0] * 600 + [1.2] * 600 + [1.0] * 600
    steps = [
        step
        for factor in slow
        for step in (TimedStep(False, 0.03, 0.03 * factor), TimedStep(True, 0.004, 0.004))
    ]
    found = interference_of(steps)
    assert found is not None
    assert len(found.few_rows) == len(found.factors)
    assert found.few_rows == pytest.approx([1.0] * len(found.factors), abs=0.01)
    assert found.factors[100] == pytest.approx(1.0, abs=0.01)
    assert found.factors[len(found.factors) // 2] == pytest.approx(1.2, abs=0.01)
    costs = Interfered(STEADY, found, start=len(found.factors) // 2)
    assert costs.seconds(DECODE) == pytest.approx(0.02, rel=0.01)
    assert costs.seconds(PROMPT) == pytest.approx(0.024, rel=0.01)


def test_a_kind_that_never_occurred_is_as_slow_as_the_other() -> None:
    found = interference_of([TimedStep(True, 0.02, 0.03)] * 20)
    assert found is not None
    assert found.factors == found.few_rows == pytest.approx([1.5] * len(found.factors))


def test_a_kind_that_is_rare_is_as_slow_as_it_usually_is() -> None:
    decodes = [TimedStep(True, 0.01, 0.01)] * 300
    prompt = TimedStep(False, 0.05, 0.06)
    found = interference_of([*decodes, prompt] * 5 + decodes)
    assert found is not None
    assert found.factors[3] == pytest.approx(1.2, abs=0.01)
    assert found.few_rows[3] == pytest.approx(1.0, abs=0.01)


def test_a_pause_in_a_rare_kind_of_step_is_a_matter_of_that_moment() -> None:
    steps = [TimedStep(False, 0.03, 0.03)] * 400
    found = interference_of([*steps, TimedStep(True, 0.004, 1.0), *steps])
    assert found is not None
    assert max(found.few_rows[:200] + found.few_rows[-200:]) == pytest.approx(1.0, abs=0.01)
    assert sum(each > 100 for each in found.few_rows) == pytest.approx(20, abs=1)
    assert max(found.factors[:200] + found.factors[-200:]) == pytest.approx(1.0, abs=0.01)


def test_steps_of_which_nothing_is_expected_tell_nothing() -> None:
    found = interference_of([TimedStep(True, 0.0, 0.06)] + [TimedStep(False, 0.03, 0.03)] * 50)
    assert found is not None
    assert set(found.factors) == {1.0}
    assert interference_of([TimedStep(True, 0.0, 0.06)] * 50) is None


def test_the_same_work_takes_the_same_time_again() -> None:
    measured = [0.02 * (1.0 + 0.3 * (n // 100 % 2)) for n in range(1000)]
    found = interference_of(TimedStep(False, 0.02, each) for each in measured)
    assert found is not None
    costs = Interfered(STEADY, found)
    assert sum(costs.seconds(DECODE) for _ in measured) == pytest.approx(sum(measured), rel=0.01)


def test_engines_begin_at_places_of_their_own() -> None:
    seen = Interference(0.03, tuple(1.0 + n % 7 for n in range(100)))
    first = [costs_of_engine(STEADY, seen, number).seconds(DECODE) for number in range(4)]
    assert len(set(first)) > 1
    assert costs_of_engine(STEADY, None) is STEADY


@pytest.mark.parametrize("factors", [(), (1.0, 0.0)])
def test_refusals(factors: tuple[float, ...]) -> None:
    with pytest.raises(ProfileError):
        Interference(0.05, factors)
