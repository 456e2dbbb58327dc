"""A report as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten

from headway.report.figures import Distribution, Figures
from headway.report.report import Report

_LATENCIES = (
    ("TTFT", "ttft"),
    ("TPOT", "tpot"),
    ("ITL", "itl"),
    ("end to end", "e2el"),
    ("queueing", "queue"),
)
#: of what a server said of a failure: its own message, or a page of somebody's proxy
_DETAIL_WIDTH = 200
_HEAD = ("", "mean", "p50", "p90", "p99", "p99.9", "max")


def as_text(report: Report) -> str:
    """Return the report in lines: totals, then a table of latencies for each class."""
    lines = [report.title, "", *_totals(report.overall, promised=bool(report.targets))]
    groups = report.classes if len(report.classes) > 1 else {}
    if not groups:
        lines += ["", *latency_table(report.overall)]
    for name, measured in groups.items():
        lines += ["", f"class {name}", *_totals(measured, promised=measured.targets is not None)]
        lines += latency_table(measured)
    lines += _ramp(report)
    lines += [f"warning: {each}" for each in report.warnings]
    return "\n".join(lines)


def duration(seconds: float | None) -> str:
    """Return a time for people, with three digits."""
    if seconds is None:
        return "–"
    milliseconds = seconds * 1e3
    if abs(milliseconds) >= 1e4:
        return f"{seconds:.1f} s"
    if abs(milliseconds) >= 100:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds:.1f} ms" if abs(milliseconds) >= 1 else f"{milliseconds:.2f} ms"


def number(value: float) -> str:
    """Return a number for people, with three digits or all before the point."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """Return a share for people; 100 % only where it is all."""
    if share is None:
        return "–"
    shown = f"{share * 100:.1f}"
    return "99.9 %" if shown == "100.0" and share < 1 else f"{shown} %"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with their columns aligned: the first left, all others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def left_aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines with all columns aligned left: the cells are words."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def latency_table(measured: Figures) -> list[str]:
    """Return the latencies that were measured, under their quantiles."""
    rows = [_HEAD]
    for name, metric in _LATENCIES:
        values: Distribution | None = getattr(measured.latencies, metric)
        if values is not None:
            figures = (values.mean, values.p50, values.p90, values.p99, values.p999, values.most)
            rows.append((name, *map(duration, figures)))  # type: ignore[arg-type]  # seven cells
    return aligned(rows) if len(rows) > 1 else ["  nothing was completed"]


def _totals(measured: Figures, *, promised: bool) -> Iterator[str]:
    counts = [
        (measured.num_failed, "failed"),
        (measured.num_cancelled, "cancelled by their clients"),
        (measured.num_unfinished, "unfinished"),
    ]
    extra = "".join(f", {count} {what}" for count, what in counts if count)
    if measured.num_stalled:
        extra += f"; clients that stopped reading for a time: {measured.num_stalled}"
    yield f"{measured.num_completed} of {measured.num_requests} requests completed{extra}"
    for kind, count in measured.errors.items():
        detail = measured.details.get(kind)
        yield f"  {count} x {kind}" + (f", first: {_one_line(detail)}" if detail else "")
    yield (
        f"{number(measured.a_second(measured.num_completed))} requests/s, "
        f"{number(measured.a_second(measured.output_tokens))} output tokens/s, "
        f"{number(measured.a_second(measured.input_tokens + measured.output_tokens))} tokens/s "
        f"over {measured.duration_s:.1f} s"
    )
    if promised:
        yield (
            f"goodput {number(measured.goodput)} requests/s: "
            f"{percent(measured.attained)} met all targets"
        )


def _one_line(detail: str) -> str:
    return shorten(detail, _DETAIL_WIDTH, placeholder=" …")


def _ramp(report: Report) -> list[str]:
    if not report.ramp:
        return []
    rows = [("requests/s", "completed/s", "tokens/s", "goodput", "in time", "TTFT p99", "TPOT p99")]
    rows += [
        (
            number(step.request_rate),
            number(step.request_throughput),
            number(step.output_throughput),
            number(step.goodput),
            percent(step.attained),
            duration(step.p99_ttft_s),
            duration(step.p99_tpot_s),
        )
        for step in report.ramp
    ]
    knee = (
        "no knee: it still grew at the last rate"
        if report.knee is None
        else f"knee at {number(report.knee)} requests/s: nothing grew beyond it"
    )
    return ["", *aligned(rows), knee]
