"""From records to figures: how long things took, how much was done, how much of it was in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from headway.metrics.quantiles import quantiles
from headway.report.record import Outcome, Record
from headway.workload import EVERY_CLASS, Targets

#: shares of the quantiles that every report has
SHARES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A measured quantity, in seconds. The deviation is that of the values themselves (n, not n-1).

    ``values`` are in ascending order.
    """

    values: Sequence[float]
    mean: float
    deviation: float
    p50: float
    p90: float
    p99: float
    p999: float

    @property
    def least(self) -> float:
        """The smallest value."""
        return self.values[0]

    @property
    def most(self) -> float:
        """The largest value."""
        return self.values[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The distributions of a set of requests; None where nothing was measured.

    Attributes:
        ttft: time to first token, from when the request was due.
        tpot: time per further token, one value a request.
        itl: time between two pieces of an answer, one value a gap.
        e2el: end to end.
        queue: until it first ran, where that is known.
        late: how late the client sent it, of all that were sent.
    """

    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    e2el: Distribution | None
    queue: Distribution | None
    late: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a set of requests got.

    Attributes:
        duration_s: time over which rates are taken.
        num_requests: all that were due.
        num_completed: those that ended well.
        num_failed: those that failed, or never were sent.
        num_cancelled: those whose client went away on purpose.
        num_stalled: those whose client stopped reading for a time on purpose.
        num_unfinished: those that still ran when the measurement ended.
        input_tokens: of those completed.
        output_tokens: likewise.
        targets: what was promised; None promises nothing.
        num_good: those that were completed and met all targets.
        errors: number of failures by kind, the most frequent first.
        details: what exactly was wrong with the first of each kind, where that is known.
        latencies: of those completed.
    """

    duration_s: float
    num_requests: int
    num_completed: int
    num_failed: int
    num_cancelled: int
    num_stalled: int
    num_unfinished: int
    input_tokens: int
    output_tokens: int
    targets: Targets | None
    num_good: int
    errors: Mapping[str, int]
    details: Mapping[str, str]
    latencies: Latencies

    def a_second(self, count: float) -> float:
        """Return a count per second."""
        return count / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def goodput(self) -> float:
        """Requests a second that met all their targets."""
        return self.a_second(self.num_good)

    @property
    def num_judged(self) -> int:
        """Requests that could have met their targets: their clients stayed, and read."""
        return self.num_requests - self.num_cancelled - self.num_stalled

    @property
    def attained(self) -> float | None:
        """The share of these that did; None if there are none."""
        return self.num_good / self.num_judged if self.num_judged > 0 else None


def distribution(values: Iterable[float]) -> Distribution | None:
    """Return mean, deviation and quantiles of values; None if there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    mean = fsum(ordered) / len(ordered)
    variance = fsum((value - mean) ** 2 for value in ordered) / len(ordered)
    return Distribution(ordered, mean, sqrt(variance), *quantiles(ordered, SHARES))


def promised(targets: Mapping[str, Targets], class_name: str) -> Targets | None:
    """Return what was promised to a class: by name, else to all (:data:`EVERY_CLASS`)."""
    return targets.get(class_name, targets.get(EVERY_CLASS))


def meets(record: Record, targets: Targets | None) -> bool:
    """Whether a request was completed with all its targets met.

    As in ``vllm bench serve``, an answer of one token meets any target of the further ones. A
    class without targets asks only that its requests end well.
    """
    if not record.is_measured:
        return False
    if targets is None:
        return True
    return (
        _within(record.ttft_s, targets.ttft_s)
        and _within(record.tpot_s, targets.tpot_s)
        and _within(record.e2el_s, targets.e2el_s)
    )


def figures(
    records: Sequence[Record], duration_s: float, targets: Mapping[str, Targets]
) -> Figures:
    """Return the figures of requests of any classes, each judged by the targets of its own."""
    counts = Counter(each.outcome for each in records if not each.stalled)
    completed = [each for each in records if each.outcome is Outcome.COMPLETED]
    failed = [each for each in records if each.outcome is Outcome.FAILED]
    errors = Counter(each.error for each in failed)
    names = {each.class_name for each in records}
    return Figures(
        duration_s=duration_s,
        num_requests=len(records),
        num_completed=len(completed),
        num_failed=counts[Outcome.FAILED],
        num_cancelled=counts[Outcome.CANCELLED],
        num_stalled=sum(each.stalled for each in records),
        num_unfinished=counts[Outcome.UNFINISHED],
        input_tokens=sum(each.input_tokens for each in completed),
        output_tokens=sum(each.output_tokens for each in completed),
        targets=promised(targets, next(iter(names))) if len(names) == 1 else None,
        num_good=sum(meets(each, promised(targets, each.class_name)) for each in records),
        errors=dict(errors.most_common()),
        details={each.error: each.detail for each in reversed(failed) if each.detail},
        latencies=latencies(records),
    )


def latencies(records: Sequence[Record]) -> Latencies:
    """Return the distributions of the requests that were completed by clients that read."""
    measured = [each for each in records if each.is_measured]
    return Latencies(
        ttft=_of(each.ttft_s for each in measured),
        tpot=_of(each.tpot_s for each in measured),
        itl=distribution(gap for each in measured for gap in each.gaps_s()),
        e2el=_of(each.e2el_s for each in measured),
        queue=_of(each.queued_s for each in measured),
        late=_of(each.late_s for each in records),
    )


def _of(values: Iterable[float | None]) -> Distribution | None:
    return distribution(value for value in values if value is not None)


def _within(value: float | None, target: float | None) -> bool:
    return target is None or value is None or value <= target
