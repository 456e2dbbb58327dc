"""Straight lines between measured points."""

from __future__ import annotations

import random

import pytest

from headway.profiles.grid import Grid


def test_a_plane_is_found_again_everywhere_within_and_beyond() -> None:
    def plane(x: float, y: float, z: float) -> float:
        return 5 + 2 * x + 3 * y + 7 * z

    axis = (1, 4, 32, 100)
    grid = Grid(((x, y, z), plane(x, y, z)) for x in axis for y in axis for z in axis)
    chance = random.Random(3)
    for _ in range(200):
        key = [chance.uniform(1, 300) for _ in range(3)]
        assert grid.at(*key) == pytest.approx(plane(*key))


def test_between_points_it_is_straight_in_the_plain_values() -> None:
    assert Grid([((1,), 1.0), ((1024,), 1024.0)]).at(512) == 512


def test_below_the_first_point_nothing_is_cheaper() -> None:
    grid = Grid([((16, 8), 3.0), ((16, 16), 5.0), ((64, 8), 9.0), ((64, 16), 11.0)])
    assert grid.at(2, 1) == grid.at(16, 8) == 3.0
    assert grid.at(40, 1) == 6.0


def test_each_point_of_an_axis_may_have_points_of_its_own() -> None:
    """As where a coarse and a fine grid were measured."""
    coarse = {0: 0.0, 100: 100.0}
    fine = {0: 0.0, 50: 500.0, 100: 1000.0}
    grid = Grid(
        [*(((1, k), v) for k, v in coarse.items()), *(((3, k), v) for k, v in fine.items())]
    )
    assert grid.at(1, 75) == 75
    assert grid.at(3, 75) == 750
    assert grid.at(2, 75) == (75 + 750) / 2


def test_it_says_what_lies_beyond_its_points() -> None:
    grid = Grid([((1, 10), 1.0), ((1, 20), 1.0), ((9, 10), 1.0)])
    assert grid.covers(0, 0)
    assert grid.covers(1, 20)
    assert not grid.covers(1, 21)
    assert not grid.covers(10, 1)
    assert not grid.covers(5, 20), "one of the two columns ends at 10"


def test_points_are_given_back() -> None:
    rows = [((1, 10), 1.0), ((1, 20), 2.0), ((9, 10), 3.0)]
    assert list(Grid(rows).rows()) == rows


def test_one_point_is_a_constant_and_none_is_refused() -> None:
    assert Grid([((5,), 2.0)]).at(99) == 2.0
    with pytest.raises(ValueError, match="needs points"):
        Grid([])
