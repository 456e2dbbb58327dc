"""Intervals over seeds, against known values."""

from __future__ import annotations

from math import sqrt
from random import Random

import pytest

from headway.sim.intervals import interval, intervals, student_t


def test_one_value_is_its_own_interval() -> None:
    found = interval([3.0])
    assert (found.mean, found.low, found.high) == (3.0, 3.0, 3.0)


def test_two_values() -> None:
    found = interval([1.0, 3.0])
    assert found.mean == 2.0
    assert found.high - 2.0 == pytest.approx(12.706)  # the deviation is sqrt(2), over sqrt(2)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(4, 2.776), (30, 2.042), (60, 2.000), (120, 1.980)]
)
def test_student(degrees: int, expected: float) -> None:
    assert student_t(degrees) == pytest.approx(expected, abs=0.001)


def test_it_covers_the_mean_about_95_times_in_100() -> None:
    random = Random(1)
    hits = 0
    for _ in range(1000):
        found = interval([random.gauss(5.0, 2.0) for _ in range(5)])
        hits += found.low <= 5.0 <= found.high
    assert abs(hits - 950) < 4 * sqrt(1000 * 0.05 * 0.95)


def test_only_what_every_report_has() -> None:
    reports = [{"a": 1.0, "b": None, "c": 2}, {"a": 2.0, "b": 3.0, "c": 2}]
    found = intervals(reports, ("a", "b", "c", "d"))
    assert set(found) == {"a", "c"}
    assert found["c"].low == found["c"].high == 2
