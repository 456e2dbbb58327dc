"""What is asked of the machines: rates, lengths and targets of each class, read off one day."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import fmean

from headway.metrics.quantiles import quantile
from headway.report.figures import promised
from headway.workload import Arrival, Targets, Workload, WorkloadError

#: the peak is the most that comes in such a window, or in a tenth of a shorter day
WINDOW_S = 60.0
#: of targets, and of the lengths with which they are compared
SHARE = 0.99
#: so many deviations above the mean lie 1 in 100 values
DEVIATIONS = 2.326


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A length in tokens, or another count: its mean and its 99th percentile."""

    mean: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Positions that a running sequence holds, at a moment taken by chance, in tokens.

    Long answers run longer, so they count for more than among the requests.
    """

    mean: float
    deviation: float

    def of_many(self, number: int) -> float:
        """Return the positions that each of so many holds on average, but for 1 moment in 100."""
        return self.mean + DEVIATIONS * self.deviation / sqrt(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDemand:
    """One class.

    Attributes:
        targets: what was promised; a class without any is to keep up with what comes.
        rate: requests a second, over the whole day.
        peak_rate: in the window in which most come.
        num_tenants: tenants that send any.
    """

    name: str
    targets: Targets | None
    num_requests: int
    num_tenants: int
    rate: float
    peak_rate: float
    prompt: Spread
    output: Spread

    @property
    def is_deferrable(self) -> bool:
        """Whether nothing was promised but that it keeps up: a peak may wait."""
        return self.targets is None or not self.targets.are_any

    @property
    def planned_rate(self) -> float:
        """The rate that the machines must serve: that of the peak, unless the peak may wait."""
        return self.rate if self.is_deferrable else self.peak_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A whole day.

    Attributes:
        classes: those with targets first, as they are stated.
        duration_s: length of the day.
        window_s: of the peak.
        prompt: lengths of prompts, of all classes.
        output: lengths of answers.
        contexts: of what runs.
        longest: tokens of the longest request, prompt and answer.
        shares_prefixes: whether prompts begin alike, which the arithmetic leaves out.
    """

    classes: tuple[ClassDemand, ...]
    duration_s: float
    window_s: float
    prompt: Spread
    output: Spread
    contexts: Contexts
    longest: int
    shares_prefixes: bool

    @property
    def planned_tokens_per_s(self) -> float:
        """Output tokens a second that the machines must give at the peak."""
        return fsum(each.planned_rate * each.output.mean for each in self.classes)

    @property
    def mean_tokens_per_s(self) -> float:
        """Output tokens a second, over the whole day."""
        return fsum(each.rate * each.output.mean for each in self.classes)


def demand_of(workload: Workload, day_s: float | None = None) -> Demand:
    """Measure a day, or a recording of days of ``day_s`` seconds.

    Raises:
        WorkloadError: it has a closed loop, whose rate is that of the machines, or no length.
    """
    if workload.loops:
        raise WorkloadError("a plan needs requests in open loop: a closed one has no rate")
    arrivals = workload.arrivals
    duration_s = length_s(workload)
    day_s = day_s or duration_s
    window_s = min(WINDOW_S, day_s / 10)
    return Demand(
        classes=tuple(
            _class(name, group, workload.targets, duration_s, window_s)
            for name, group in by_class(workload).items()
        ),
        duration_s=day_s,
        window_s=window_s,
        prompt=_spread(each.prompt_tokens for each in arrivals),
        output=_spread(each.output_tokens for each in arrivals),
        contexts=contexts_of(arrivals),
        longest=max(each.prompt_tokens + each.output_tokens for each in arrivals),
        shares_prefixes=_share_prefixes(arrivals),
    )


def _share_prefixes(arrivals: Sequence[Arrival]) -> bool:
    """Whether any two prompts begin alike."""
    firsts = [each.hashes.ids[0] for each in arrivals if each.hashes and each.hashes.ids]
    return len(set(firsts)) < len(firsts)


def length_s(workload: Workload) -> float:
    """Return how long requests come, of a workload that may not say it.

    Raises:
        WorkloadError: all come at once.
    """
    if workload.duration_s < float("inf"):
        return workload.duration_s
    last_s = workload.arrivals[-1].at_s
    if not last_s:
        raise WorkloadError("all requests come at once, so they have no rate")
    return last_s


def class_names(workload: Workload) -> list[str]:
    """Return the classes of which somebody comes, in the order of the targets and then of time."""
    present = dict.fromkeys(each.class_name for each in workload.arrivals)
    stated = [name for name in workload.targets if name in present]
    return list(dict.fromkeys([*stated, *present]))


def by_class(workload: Workload) -> Mapping[str, list[Arrival]]:
    """Return the requests of each class, in order."""
    groups: dict[str, list[Arrival]] = {name: [] for name in class_names(workload)}
    for each in workload.arrivals:
        groups[each.class_name].append(each)
    return groups


def _class(
    name: str,
    arrivals: Sequence[Arrival],
    targets: Mapping[str, Targets],
    duration_s: float,
    window_s: float,
) -> ClassDemand:
    return ClassDemand(
        name=name,
        targets=promised(targets, name),
        num_requests=len(arrivals),
        num_tenants=len({each.tenant for each in arrivals}),
        rate=len(arrivals) / duration_s,
        peak_rate=peak_rate([each.at_s for each in arrivals], window_s),
        prompt=_spread(each.prompt_tokens for each in arrivals),
        output=_spread(each.output_tokens for each in arrivals),
    )


def peak_rate(times: Sequence[float], window_s: float) -> float:
    """Return the most arrivals a second in any window; ``times`` in order."""
    return max(
        (bisect_left(times, at_s + window_s) - number) / window_s
        for number, at_s in enumerate(times)
    )


def _spread(values: Iterable[int]) -> Spread:
    found = list(values)
    return Spread(mean=fmean(found), p99=quantile(found, SHARE))


def contexts_of(arrivals: Sequence[Arrival]) -> Contexts:
    """Return what running sequences hold: each token of an answer is a moment of its sequence.

    A sequence with a prompt of p tokens holds p + 1, p + 2, ... p + n positions, for as many steps.
    """
    count = sum(each.output_tokens for each in arrivals)
    first = fsum(_sum(each.prompt_tokens, each.output_tokens) for each in arrivals) / count
    second = fsum(_squares(each.prompt_tokens, each.output_tokens) for each in arrivals) / count
    return Contexts(mean=first, deviation=sqrt(max(second - first**2, 0.0)))


def _sum(prompt: int, output: int) -> float:
    return output * prompt + output * (output + 1) / 2


def _squares(prompt: int, output: int) -> float:
    """Return the sum of (prompt + i)^2 for i from 1 to ``output``."""
    ascending = output * (output + 1) * (2 * output + 1) / 6
    return output * prompt**2 + prompt * output * (output + 1) + ascending
