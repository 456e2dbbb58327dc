"""A table of what each class got, with the share that met its targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headway.core.classes import ServiceClass
from headway.metrics.quantiles import quantile
from headway.sim.records import RequestRecord, SimulationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReport:
    """What one class got. Times are in seconds; NaN where there is nothing to measure.

    ``goodput`` is requests a second that met all targets of their class; ``attained`` is their
    share of those that came. A class without targets asks only that its requests end well.
    """

    name: str
    num_requests: int
    num_finished: int
    mean_latency_s: float
    median_latency_s: float
    median_ttft_s: float
    p99_ttft_s: float
    p99_tpot_s: float
    p99_itl_s: float
    p999_queued_s: float
    goodput: float
    attained: float


def report_by_class(
    result: SimulationResult, classes: Sequence[ServiceClass]
) -> tuple[ClassReport, ...]:
    """Report on each class, in the order given."""
    return tuple(_report(result, each) for each in classes)


def meets_targets(record: RequestRecord, targets: ServiceClass) -> bool:
    """Whether the request ended well, with its first token and the others in time."""
    return (
        record.is_finished
        and _within(record.ttft_s, targets.ttft_target_s)
        and _within(record.tpot_s, targets.tpot_target_s)
    )


def values(
    records: Iterable[RequestRecord], of: Callable[[RequestRecord], float | None]
) -> list[float]:
    """Return what can be measured of each record, where it can."""
    return [value for value in map(of, records) if value is not None]


def _within(value: float | None, target: float | None) -> bool:
    return target is None or value is None or value <= target


def _report(result: SimulationResult, targets: ServiceClass) -> ClassReport:
    records = [r for r in result.requests if r.arrival.class_name == targets.name]
    num_good = sum(meets_targets(each, targets) for each in records)
    latencies = values(records, lambda each: each.latency_s)
    ttfts = values(records, lambda each: each.ttft_s)
    return ClassReport(
        name=targets.name,
        num_requests=len(records),
        num_finished=sum(each.is_finished for each in records),
        mean_latency_s=sum(latencies) / len(latencies) if latencies else _NAN,
        median_latency_s=_quantile(latencies, 0.5),
        median_ttft_s=_quantile(ttfts, 0.5),
        p99_ttft_s=_quantile(ttfts, 0.99),
        p99_tpot_s=_quantile(values(records, lambda each: each.tpot_s), 0.99),
        p99_itl_s=_quantile([gap for each in records for gap in each.gaps_s()], 0.99),
        p999_queued_s=_quantile(values(records, lambda each: each.queued_s), 0.999),
        goodput=num_good / result.end_s if result.end_s else 0.0,
        attained=num_good / len(records) if records else _NAN,
    )


_NAN = float("nan")


def _quantile(measured: Sequence[float], share: float) -> float:
    return quantile(measured, share) if measured else _NAN
