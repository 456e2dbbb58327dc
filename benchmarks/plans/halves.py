"""The halves of a trace, each at the same mean rate; and days that have forgotten the bursts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from random import Random
from statistics import fmean, pvariance

from benchmarks.places import trace
from headway.workload import (
    Arrival,
    Targets,
    Workload,
    drawn_from,
    poisson_arrivals,
    read_azure,
)

TRACES = {"code": "azure2023_code.csv", "conversation": "azure2023_conv.csv"}


def halves(name: str, rate: float, targets: Targets) -> tuple[Workload, Workload]:
    """Return the first and the second half of a trace's time, each stretched to so many a second.

    Raises:
        WorkloadError: the trace isn't there.
    """
    arrivals = read_azure(trace(TRACES[name]))
    middle_s = arrivals[-1].at_s / 2
    early = [each for each in arrivals if each.at_s < middle_s]
    late = [replace(each, at_s=each.at_s - middle_s) for each in arrivals if each.at_s >= middle_s]
    return _at(early, middle_s, rate, targets), _at(late, middle_s, rate, targets)


def _at(arrivals: list[Arrival], duration_s: float, rate: float, targets: Targets) -> Workload:
    factor = len(arrivals) / duration_s / rate
    times = [replace(each, at_s=each.at_s * factor) for each in arrivals]
    # the last request of the recording comes at the very end
    return Workload(times, (), duration_s * factor + 1e-6, {"default": targets})


@dataclass(frozen=True, slots=True)
class PoissonDays:
    """Days with the mean rate and the lengths of a recording, and without its bursts."""

    recording: Workload
    duration_s: float

    @property
    def num_recorded(self) -> float:
        """A law is taken to be known."""
        return inf

    def draw(self, count: int, seed: int) -> Iterator[Workload]:
        """Yield so many days."""
        arrivals = self.recording.arrivals
        rate = len(arrivals) / self.recording.duration_s
        lengths = [(each.prompt_tokens, each.output_tokens) for each in arrivals]
        for number in range(count):
            random = Random(f"{seed}/poisson {number}")
            drawn = drawn_from(lengths, random)
            times = poisson_arrivals(rate, drawn, random, duration_s=self.duration_s)
            yield Workload(times, (), self.duration_s, self.recording.targets)


def dispersion(workload: Workload, window_s: float) -> float:
    """Return variance over mean of the arrivals in a window: 1 if they come by chance alone."""
    counts = [0] * int(workload.duration_s / window_s)
    for each in workload.arrivals:
        if each.at_s < len(counts) * window_s:
            counts[int(each.at_s / window_s)] += 1
    return pvariance(counts) / fmean(counts)
