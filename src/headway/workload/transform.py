"""The same requests at another pace, together with others, or a part of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import merge

from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError


def in_order(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Return them by time; those of one moment keep their order."""
    return sorted(arrivals, key=lambda each: each.at_s)


def merged(*workloads: Sequence[Arrival]) -> list[Arrival]:
    """Return several workloads, each in order of time, as one."""
    return list(merge(*workloads, key=lambda each: each.at_s))


def before(arrivals: Iterable[Arrival], moment_s: float) -> list[Arrival]:
    """Return those that come before a moment."""
    return [each for each in arrivals if each.at_s < moment_s]


def stretched(arrivals: Iterable[Arrival], factor: float) -> list[Arrival]:
    """Return them with all times multiplied: 0.5 is twice the load."""
    if not 0 < factor < float("inf"):
        raise WorkloadError(f"times can't be stretched by {factor}")
    return [replace(each, at_s=each.at_s * factor) for each in arrivals]


def rate_of(arrivals: Sequence[Arrival]) -> float:
    """Return arrivals a second, from the first to the last."""
    if len(arrivals) < 2 or arrivals[-1].at_s <= arrivals[0].at_s:
        raise WorkloadError(f"{len(arrivals)} arrivals of one moment have no rate")
    return (len(arrivals) - 1) / (arrivals[-1].at_s - arrivals[0].at_s)


def at_rate(arrivals: Sequence[Arrival], rate: float) -> list[Arrival]:
    """Return them stretched to so many a second; bursts stay as bursty as they are."""
    if not rate > 0:
        raise WorkloadError(f"rate must be above 0 a second, not {rate}")
    return stretched(arrivals, rate_of(arrivals) / rate)
