"""A report as one JSON object, with the keys of ``vllm bench serve``, and as lines of CSV.

The keys that vLLM has mean what they mean there, but that latencies count from when a request was
due. Headway's own are ``p50_…``, ``p90_…`` and ``p99.9_…`` beside vLLM's default ``p99_…``,
``num_cancelled`` and its kin, ``queue`` and ``late`` latencies, ``errors_by_kind``,
``error_details``, ``attained``, ``classes``, ``tenants``, ``ramp``, ``knee_request_rate`` and
``warnings``. What was not measured is null.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from headway.report.activity import peak_concurrency, peak_output_tokens
from headway.report.figures import Distribution, Figures, Latencies
from headway.report.record import Outcome, Record
from headway.report.report import Report
from headway.workload import Targets

_MILLI = 1e3
METRICS = ("ttft", "tpot", "itl", "e2el", "queue", "late")

CSV_COLUMNS = (
    "number",
    "class",
    "tenant",
    "outcome",
    "error",
    "due_s",
    "sent_s",
    "started_s",
    "first_token_s",
    "ended_s",
    "input_tokens",
    "output_tokens",
    "num_pieces",
    "ttft_ms",
    "tpot_ms",
    "e2el_ms",
    "late_ms",
    "queue_ms",
    "max_itl_ms",
    "stalled",
    "num_preemptions",
    "num_cached_tokens",
    "detail",
)


def to_json(report: Report, *, detailed: bool = False) -> dict[str, Any]:
    """Return the object; ``detailed`` adds vLLM's lists with an entry for each request."""
    overall = report.overall
    value: dict[str, Any] = dict(report.facts)
    value |= _figures(overall, promised=bool(report.targets))
    value["max_output_tokens_per_s"] = peak_output_tokens(report.records)
    value["max_concurrent_requests"] = peak_concurrency(report.records)
    value["classes"] = _groups(report.classes)
    if report.tenants:
        value["tenants"] = _groups(report.tenants)
    if report.ramp:
        value["ramp"] = [asdict(step) for step in report.ramp]
        value["knee_request_rate"] = report.knee
    value["warnings"] = list(report.warnings)
    if detailed:
        value |= _details(report.records)
    return value


def write_csv(records: Sequence[Record], stream: TextIO) -> None:
    """Write one row a request, under :data:`CSV_COLUMNS`; times are in seconds from the begin."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows(_rows(records))


def _figures(measured: Figures, *, promised: bool) -> dict[str, Any]:
    total_tokens = measured.input_tokens + measured.output_tokens
    value: dict[str, Any] = {
        "duration": measured.duration_s,
        "num_requests": measured.num_requests,
        "completed": measured.num_completed,
        "failed": measured.num_failed,
        "num_cancelled": measured.num_cancelled,
        "num_stalled": measured.num_stalled,
        "num_unfinished": measured.num_unfinished,
        "total_input_tokens": measured.input_tokens,
        "total_output_tokens": measured.output_tokens,
        "request_throughput": measured.a_second(measured.num_completed),
        "request_goodput": measured.goodput if promised else None,
        "attained": measured.attained if promised else None,
        "output_throughput": measured.a_second(measured.output_tokens),
        "total_token_throughput": measured.a_second(total_tokens),
        "errors_by_kind": dict(measured.errors),
        "error_details": dict(measured.details),
    }
    return value | latencies_to_json(measured.latencies)


def latencies_to_json(latencies: Latencies) -> dict[str, float | None]:
    """Return mean, median, deviation and percentiles of each metric, in milliseconds."""
    value: dict[str, float | None] = {}
    for metric in METRICS:
        value |= _distribution(metric, getattr(latencies, metric))
    return value


def _distribution(metric: str, measured: Distribution | None) -> dict[str, float | None]:
    names = {
        "mean": "mean",
        "median": "p50",
        "std": "deviation",
        "p50": "p50",
        "p90": "p90",
        "p99": "p99",
        "p99.9": "p999",
        "max": "most",
    }
    return {
        f"{name}_{metric}_ms": None if measured is None else getattr(measured, field) * _MILLI
        for name, field in names.items()
    }


def _groups(groups: Mapping[str, Figures]) -> dict[str, Any]:
    return {name: _group(measured) for name, measured in groups.items()}


def _group(measured: Figures) -> dict[str, Any]:
    targets = measured.targets or Targets()
    value = _figures(measured, promised=targets.are_any)
    promised = {"ttft": targets.ttft_s, "tpot": targets.tpot_s, "e2el": targets.e2el_s}
    value["targets"] = {
        f"{name}_ms": None if seconds is None else seconds * _MILLI
        for name, seconds in promised.items()
    }
    return value


def _details(records: Sequence[Record]) -> dict[str, Any]:
    """Return vLLM's lists; times begin with the workload, latencies when each request was due."""
    return {
        "input_lens": [each.input_tokens for each in records],
        "output_lens": [
            each.output_tokens if each.outcome is Outcome.COMPLETED else 0 for each in records
        ],
        "ttfts": [each.ttft_s or 0.0 for each in records],
        "itls": [list(each.gaps_s()) for each in records],
        "latencies": [each.e2el_s or 0.0 for each in records],
        "start_times": [each.due_s for each in records],
        "queue_times": [each.late_s or 0.0 for each in records],
        "errors": [_said(each) for each in records],
        "request_classes": [each.class_name for each in records],
        "request_tenants": [each.tenant for each in records],
    }


def _said(record: Record) -> str:
    return f"{record.error}: {record.detail}" if record.detail else record.error


def _rows(records: Sequence[Record]) -> Iterator[list[Any]]:
    for number, each in enumerate(records):
        yield [
            number,
            each.class_name,
            each.tenant,
            each.outcome.value,
            each.error,
            _seconds(each.due_s),
            _seconds(each.sent_s),
            _seconds(each.started_s),
            _seconds(each.token_times[0] if each.token_times else None),
            _seconds(each.ended_s),
            each.input_tokens,
            each.output_tokens,
            len(each.token_times),
            _milliseconds(each.ttft_s),
            _milliseconds(each.tpot_s),
            _milliseconds(each.e2el_s),
            _milliseconds(each.late_s),
            _milliseconds(each.queued_s),
            _milliseconds(max(each.gaps_s(), default=None)),
            int(each.stalled),
            each.num_preemptions,
            each.num_cached_tokens,
            each.detail,
        ]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value * _MILLI:.3f}"
