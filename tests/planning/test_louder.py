"""More load of the same kind: as long, with so many times the requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.planning.louder import louder
from headway.workload import Arrival, Targets, Workload, WorkloadError

TARGETS = {"default": Targets(ttft_s=1.0)}


def day(count: int, length_s: float = 10.0) -> Workload:
    arrivals = [
        Arrival(at_s=length_s * n / count, prompt_tokens=n + 1, output_tokens=1)
        for n in range(count)
    ]
    return Workload(arrivals, (), length_s, TARGETS)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.floats(0.2, 5.0))
def test_days_stay_as_long_and_come_in_order(counts: list[int], factor: float) -> None:
    days = [day(count) for count in counts]
    found = louder(days, factor)
    assert len(found) == len(days)
    for each in found:
        times = [arrival.at_s for arrival in each.arrivals]
        assert times == sorted(times)
        assert not times or times[-1] < 10.0
        assert (each.duration_s, each.targets) == (10.0, TARGETS)
    total, wanted = sum(len(each.arrivals) for each in found), factor * sum(counts)
    assert abs(total - wanted) <= len(days) * (5 + max(counts))


def test_equal_days_have_exactly_so_many_times_the_load() -> None:
    (found, _) = louder([day(20), day(20)], 2.0)
    assert len(found.arrivals) == 40
    assert found.arrivals[1].at_s == pytest.approx(0.25)


def test_what_is_no_load_is_refused() -> None:
    with pytest.raises(WorkloadError, match="more than 0 times"):
        louder([day(3)], 0.0)
