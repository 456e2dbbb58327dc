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
    costs_of_engine,
    interference_of,
)
from headway.profiles.shape import StepShape

DECODE = StepShape((), 1, 10, 10, 10)
STEADY = StepCosts(base_s=0.02, prefill_token_s=0.0, decode_s=0.0)


def test_a_step_that_spans_windows_is_slowed_by_each() -> None:
    costs = Interfered(STEADY, Interference(0.03, (1.0, 2.0)))
    assert costs.seconds(DECODE) == pytest.approx(0.02)
    assert costs.seconds(DECODE) == pytest.approx(0.01 + 2 * 0.01)
    assert costs.seconds(DECODE) == pytest.approx(0.01 + 0.015)  # the slow one ends; round again
    assert costs.seconds(DECODE) == pytest.approx(0.015 + 2 * 0.005)


@given(st.lists(st.floats(0.001, 0.4), min_size=1, max_size=300))
@example([0.25, *[0.125] * 5, 0.09375, 0.03125, 0.0625, 0.25, 0.25])
def test_what_was_seen_is_played_again_in_the_same_time(measured: list[float]) -> None:
    found = interference_of([(0.02, each) for each in measured])
    if found is None:
        assert sum(measured) < 0.05
        return
    covered_s = found.window_s * len(found.factors)
    costs = Interfered(STEADY, found)
    num_steps = 0
    simulated_s = 0.0
    while simulated_s < covered_s and num_steps < len(measured):
        simulated_s += costs.seconds(DECODE)
        num_steps += 1
    real_s = sum(measured[:num_steps])
    # a factor is of whole windows, and at least a fifth
    assert simulated_s == pytest.approx(real_s, abs=0.1 + 0.02 * 0.2 * num_steps + max(measured))


def test_engines_begin_at_places_of_their_own() -> None:
    seen = Interference(0.03, tuple(1.0 + n % 7 for n in range(100)))
    first = [costs_of_engine(STEADY, seen, number).seconds(DECODE) for number in range(4)]
    assert len(set(first)) > 1
    assert costs_of_engine(STEADY, None) is STEADY


@pytest.mark.parametrize("factors", [(), (1.0, 0.0)])
def test_refusals(factors: tuple[float, ...]) -> None:
    with pytest.raises(ProfileError):
        Interference(0.05, factors)
