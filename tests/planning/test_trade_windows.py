"""Trough and peak lie where the fewest and the most requests come, and chance makes neither."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.planning.trade_windows import MARGIN_SHARE, around, windows_of
from headway.workload import Arrival, Workload


def at(times: list[float]) -> list[Arrival]:
    return [Arrival(at_s=each, prompt_tokens=1, output_tokens=1) for each in sorted(times)]


def every(gap_s: float, begin_s: float, end_s: float) -> list[float]:
    return [begin_s + n * gap_s for n in range(round((end_s - begin_s) / gap_s))]


def test_trough_and_peak_of_a_day_with_a_night() -> None:
    arrivals = at(every(1.0, 0, 100) + every(0.1, 100, 200) + every(0.5, 200, 300))
    trough, peak = windows_of([arrivals], 20.0)
    assert (trough.name, peak.name) == ("trough", "peak")
    assert 0 <= trough.begin_s < trough.end_s <= 100
    assert 100 <= peak.begin_s < peak.end_s <= 200
    assert (trough.num_requests, peak.num_requests) == (20, 200)
    assert peak.request_rate == pytest.approx(10)


def test_a_window_without_requests_is_a_trough() -> None:
    trough, peak = windows_of([at(every(0.1, 0, 50) + every(0.1, 150, 200))], 20.0)
    assert trough.num_requests == 0
    assert trough.request_rate == 0
    assert peak.num_requests >= 200


def test_even_arrivals_are_steady() -> None:
    arrivals = at(every(0.5, 0, 300))
    (only,) = windows_of([arrivals])
    assert only.name == "steady"
    assert (only.begin_s, only.end_s) == (0, 299.5)
    assert only.request_rate == pytest.approx(2)


@pytest.mark.parametrize("count", [60, 600])
def test_chance_alone_is_steady(count: int) -> None:
    found = [
        windows_of([at([random.random() * 100 for _ in range(count)])])
        for random in map(Random, range(40))
    ]
    assert all(len(each) == 1 for each in found)


def test_a_rise_that_asks_for_no_other_fleet_is_steady() -> None:
    assert len(windows_of([at(every(0.010, 0, 100) + every(0.009, 100, 200))], 50.0)) == 1
    assert len(windows_of([at(every(0.010, 0, 100) + every(0.007, 100, 200))], 50.0)) == 2


def test_all_at_once_and_windows_without_room_are_refused() -> None:
    with pytest.raises(ValueError, match="all requests come at once"):
        windows_of([at([3.0] * 9)])
    for length_s in (0.0, -1.0, 60.0, float("nan")):
        with pytest.raises(ValueError, match="two must fit"):
            windows_of([at(every(1.0, 0, 100))], length_s)
    with pytest.raises(ValueError, match="most would be empty"):
        windows_of([at(every(1.0, 0, 100))], 1e-9)


def test_what_one_seed_draws_by_chance_is_no_peak() -> None:
    burst = at(every(1.0, 0, 100) + every(0.2, 40, 50))
    assert [each.name for each in windows_of([burst], 10.0)] == ["trough", "peak"]
    others = [at(every(1.0, 0, 100)) for _ in range(9)]
    (only,) = windows_of([burst, *others], 10.0)
    assert (only.name, only.num_requests) == ("steady", 99 + 50 / 10)


@given(st.lists(st.floats(0, 1000), min_size=3, max_size=60), st.floats(0.01, 0.5))
def test_windows_lie_in_the_workload_and_say_what_comes_in_them(
    times: list[float], share: float
) -> None:
    arrivals = at(times)
    span_s = max(times) - min(times)
    if span_s < 1e-3:
        return
    found = windows_of([arrivals], max(share, 1.01 / len(times)) * span_s)
    workload = Workload(arrivals, (), float("inf"), {})
    for window in found:
        assert min(times) <= window.begin_s < window.end_s <= max(times) * (1 + 1e-9)
        assert window.num_requests == len(drawn_in(arrivals, window.begin_s, window.end_s))
        part, moved = around(workload, window)
        margin_s = MARGIN_SHARE * window.length_s
        assert moved.begin_s <= margin_s * (1 + 1e-9) + 1e-9
        assert moved.length_s == pytest.approx(window.length_s)
        assert all(each.at_s <= moved.end_s + margin_s for each in part.arrivals)
    counts = [each.num_requests for each in found]
    assert counts == sorted(counts)


def drawn_in(arrivals: list[Arrival], begin_s: float, end_s: float) -> list[Arrival]:
    return [each for each in arrivals if begin_s <= each.at_s < end_s]
