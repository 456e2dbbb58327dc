"""A whole measurement: its records, and the figures of all requests, each class, each tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headway.report.figures import Figures, figures
from headway.report.record import Record
from headway.workload import Targets

Fact = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RampStep:
    """One rate of a ramp, in requests and tokens a second, and what it brought; times in seconds.

    ``p99_tpot_s`` and its kin are None where nothing was measured.
    """

    request_rate: float
    request_throughput: float
    output_throughput: float
    goodput: float
    attained: float | None
    p99_ttft_s: float | None
    p99_tpot_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured, of what.

    Attributes:
        title: one line for people.
        kind: ``bench``, ``simulate`` or ``compare``.
        facts: how it was measured, in words and numbers for people and for the JSON.
        records: in the order in which they were due.
        overall: of all of them.
        classes: by class, in the order of their first request.
        tenants: by tenant, if there are several.
        warnings: reasons to trust it less.
        ramp: the steps of a ramp to saturation, if this was one.
        knee: the rate beyond which nothing grew, in requests a second; None if it was not met.
    """

    title: str
    kind: str
    facts: Mapping[str, Fact]
    records: Sequence[Record]
    overall: Figures
    classes: Mapping[str, Figures]
    tenants: Mapping[str, Figures]
    warnings: Sequence[str] = ()
    ramp: Sequence[RampStep] = ()
    knee: float | None = None
    targets: Mapping[str, Targets] = field(default_factory=dict)


def report_on(
    records: Sequence[Record],
    duration_s: float,
    targets: Mapping[str, Targets],
    *,
    title: str,
    kind: str,
    facts: Mapping[str, Fact],
    warnings: Sequence[str] = (),
    ramp: Sequence[RampStep] = (),
    knee: float | None = None,
) -> Report:
    """Make a report of records; ``duration_s`` is the time over which rates are taken."""
    ordered = sorted(records, key=lambda each: each.due_s)
    overall = figures(ordered, duration_s, targets)
    tenants = _grouped(ordered, lambda each: each.tenant)
    classes = _grouped(ordered, lambda each: each.class_name)
    return Report(
        title=title,
        kind=kind,
        facts=facts,
        records=ordered,
        overall=overall,
        classes={
            name: overall if len(classes) == 1 else figures(group, duration_s, targets)
            for name, group in classes.items()
        },
        tenants={
            name: figures(group, duration_s, targets)
            for name, group in tenants.items()
            if len(tenants) > 1
        },
        warnings=warnings,
        ramp=ramp,
        knee=knee,
        targets=targets,
    )


def _grouped(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for each in records:
        groups.setdefault(key(each), []).append(each)
    return groups


def ramp_step(rate: float, measured: Figures) -> RampStep:
    """Return the line of a ramp that a measurement at this rate is."""
    ttft, tpot = measured.latencies.ttft, measured.latencies.tpot
    return RampStep(
        request_rate=rate,
        request_throughput=measured.a_second(measured.num_completed),
        output_throughput=measured.a_second(measured.output_tokens),
        goodput=measured.goodput,
        attained=measured.attained,
        p99_ttft_s=None if ttft is None else ttft.p99,
        p99_tpot_s=None if tpot is None else tpot.p99,
    )
