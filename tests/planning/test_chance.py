"""Intervals of a chance: against published figures, and by what an interval promises."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.planning.chance import Chance, at_least_so_many


@pytest.mark.parametrize(
    ("held", "of", "low", "high"),
    [
        # closed forms at the ends: (α/2)^(1/n) and 1 - (α/2)^(1/n)
        (10, 10, 0.025 ** (1 / 10), 1.0),
        (0, 10, 0.0, 1 - 0.025 ** (1 / 10)),
        (40, 40, 0.025 ** (1 / 40), 1.0),
        # R: binom.test(38, 40)$conf.int, binom.test(950, 1000)$conf.int
        (38, 40, 0.8308, 0.9939),
        (950, 1000, 0.9346, 0.9627),
    ],
)
def test_intervals_are_those_of_clopper_and_pearson(
    held: int, of: int, low: float, high: float
) -> None:
    assert Chance(held, of).interval() == pytest.approx((low, high), abs=5e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 25), st.floats(0.01, 0.99), st.sampled_from([0.8, 0.95, 0.99]))
def test_an_interval_covers_the_true_chance_as_often_as_it_says(
    of: int, truth: float, level: float
) -> None:
    def covers(held: int) -> bool:
        low, high = Chance(held, of).interval(level)
        return low <= truth <= high

    ways = (comb(of, k) * truth**k * (1 - truth) ** (of - k) for k in range(of + 1))
    covered = sum(way for k, way in enumerate(ways) if covers(k))
    assert covered >= level - 1e-9


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200))
def test_an_interval_has_the_share_in_it_and_mirrors(held: int, missed: int) -> None:
    chance = Chance(held, held + missed)
    low, high = chance.interval()
    assert 0 <= low <= high <= 1
    if chance.of:
        assert low <= chance.share <= high
        mirrored = Chance(missed, held + missed).interval()
        assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)
        assert chance.at_least(0.975) == low


def test_nothing_tried_tells_nothing() -> None:
    assert Chance(0, 0).interval() == (0.0, 1.0)


def test_59_days_that_all_hold_are_the_fewest_that_show_95_percent() -> None:
    assert Chance(59, 59).at_least(0.95) >= 0.95 > Chance(58, 58).at_least(0.95)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.floats(0, 1))
def test_tails_add_up(of: int, chance: float) -> None:
    tails = [at_least_so_many(k, of, chance) for k in range(of + 2)]
    assert tails[0] == 1
    assert all(0 <= after <= before + 1e-12 for before, after in pairwise(tails))
    assert sum(tails[1:]) == pytest.approx(of * chance, abs=1e-6)  # the mean


@pytest.mark.parametrize(
    ("held", "of", "promised"), [(19, 19, True), (18, 18, False), (38, 39, True)]
)
def test_days_that_are_enough_for_one_more_to_hold(held: int, of: int, promised: bool) -> None:
    assert (Chance(held, of).of_next >= 0.95 - 1e-12) is promised


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30, unique=True))
def test_the_last_of_alike_figures_lies_below_the_kth_as_often_as_it_says(
    figures: list[float],
) -> None:
    number = len(figures) - 1
    for k in range(1, number + 1):  # each figure may as well have come last
        below = sum(
            last <= sorted(figures[:place] + figures[place + 1 :])[k - 1]
            for place, last in enumerate(figures)
        )
        assert below / len(figures) == pytest.approx(Chance(k, number).of_next)


@pytest.mark.parametrize(("held", "of"), [(-1, 3), (4, 3)])
def test_more_than_all_can_not_have_held(held: int, of: int) -> None:
    with pytest.raises(ValueError, match="can't have held"):
        Chance(held, of)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        Chance(1, 2).interval(level)
