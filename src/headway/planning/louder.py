"""The same kind of day with more load: times are squeezed, and the rest of the day is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from headway.planning.demand import length_s
from headway.workload import Arrival, Workload, WorkloadError


def louder(days: Sequence[Workload], factor: float) -> list[Workload]:
    """Return as many days, with ``factor`` times the load, and as long as they were.

    Each is put together from itself and the days after it, squeezed in time: bursts stay as bursty,
    and a queue has as long to grow.

    Raises:
        WorkloadError: the factor is none, or the days have no end.
    """
    if not 0 < factor < float("inf"):
        raise WorkloadError(f"a load is more than 0 times the planned one, not {factor:g}")
    if factor == 1:
        return list(days)
    count = ceil(factor)
    rings = [[days[(n + each) % len(days)] for each in range(count)] for n in range(len(days))]
    return [_squeezed(ring, factor) for ring in rings]


def _squeezed(ring: Sequence[Workload], factor: float) -> Workload:
    first = ring[0]
    return replace(first, arrivals=list(_pressed(ring, factor, length_s(first))))


def _pressed(ring: Sequence[Workload], factor: float, day_s: float) -> Iterator[Arrival]:
    for number, day in enumerate(ring):
        for each in day.arrivals:
            at_s = (number * day_s + each.at_s) / factor
            if at_s >= day_s:
                return
            yield replace(each, at_s=at_s)
