"""The stretches of a workload in which the fewest and the most requests come: trough and peak."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

from headway.workload import Arrival, Workload

#: of the workload's time that a window takes unless its length is given: two hours of a day
WINDOW_SHARE = 1 / 12
#: windows begin every quarter of their length: finer places find hardly busier ones
_PLACES = 4
#: before and after a window as much of its length is served too, so that the batch is full when it
#: begins, and who came in it isn't left alone at its end
MARGIN_SHARE = 0.5
#: standard deviations between the counts of peak and trough, as of Poisson arrivals, below which
#: chance explains them: of steady workloads 1 in 100 comes to 4.2, with windows of the default
CHANCE_DEVIATIONS = 4.5
#: a peak with less than so many times the requests of the trough asks for no other fleet
PEAK_RATIO = 1.2


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time.

    Attributes:
        name: trough, peak, or steady.
        begin_s: from here on,
        end_s: and before this moment.
        num_requests: that come in it, on average over the seeds.
    """

    name: str
    begin_s: float
    end_s: float
    num_requests: float

    @property
    def length_s(self) -> float:
        """Seconds from begin to end."""
        return self.end_s - self.begin_s

    @property
    def request_rate(self) -> float:
        """Requests a second."""
        return self.num_requests / self.length_s


def windows_of(
    seeds: Sequence[Sequence[Arrival]], length_s: float | None = None
) -> tuple[Window, ...]:
    """Return trough and peak in order; of a steady workload one window, all of its time.

    Args:
        seeds: what comes with each seed. They are counted together: what one seed draws by chance
            is no peak.
        length_s: of each window; None is a share of the time (:data:`WINDOW_SHARE`).

    Raises:
        ValueError: all come at once, the time has no room for two such windows, or they are so
            short that most are empty.
    """
    times = sorted(each.at_s for arrivals in seeds for each in arrivals)
    first_s, last_s = times[0], times[-1]
    length_s = _length(last_s - first_s, len(times), length_s)
    places = _windows(times, last_s - first_s, length_s)
    trough = min(places, key=lambda each: each.num_requests)
    peak = max(places, key=lambda each: each.num_requests)
    if _is_chance(trough.num_requests, peak.num_requests):
        found = [Window("steady", first_s, last_s, _count(times, first_s, last_s))]
    else:
        found = [replace(trough, name="trough"), replace(peak, name="peak")]
    return tuple(replace(each, num_requests=each.num_requests / len(seeds)) for each in found)


def _length(span_s: float, count: int, length_s: float | None) -> float:
    """Return the length of windows, which is checked."""
    if span_s <= 0:
        raise ValueError("all requests come at once: a trade needs requests that come over time")
    if length_s is None:
        return span_s * WINDOW_SHARE
    if not 0 < length_s <= span_s / 2:
        raise ValueError(
            f"windows of {length_s:g} s: they must be above 0, and two must fit into the "
            f"{span_s:.4g} s in which requests come"
        )
    if count * length_s < span_s:
        raise ValueError(
            f"windows of {length_s:g} s: most would be empty, since a request comes every "
            f"{span_s / count:.4g} s: say a longer --window-s"
        )
    return length_s


def _windows(times: Sequence[float], span_s: float, length_s: float) -> list[Window]:
    step_s = length_s / _PLACES
    count = int((span_s - length_s) / step_s * (1 + 1e-9)) + 1
    begins = (times[0] + number * step_s for number in range(count))
    return [
        Window("", each, each + length_s, _count(times, each, each + length_s)) for each in begins
    ]


def _count(times: Sequence[float], begin_s: float, end_s: float) -> int:
    return bisect_left(times, end_s) - bisect_left(times, begin_s)


def _is_chance(fewest: float, most: float) -> bool:
    deviations = (most - fewest) / sqrt(most + fewest)
    return deviations < CHANCE_DEVIATIONS or most < PEAK_RATIO * fewest


def around(workload: Workload, window: Window) -> tuple[Workload, Window]:
    """Return what comes in a window and its margins, from second 0 on, and the window in it."""
    margin_s = MARGIN_SHARE * window.length_s
    start_s = max(window.begin_s - margin_s, 0.0)
    arrivals = [
        replace(each, at_s=each.at_s - start_s)
        for each in workload.arrivals
        if start_s <= each.at_s < window.end_s + margin_s
    ]
    moved = replace(window, begin_s=window.begin_s - start_s, end_s=window.end_s - start_s)
    return replace(workload, arrivals=arrivals, duration_s=inf), moved
