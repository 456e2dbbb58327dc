"""Advice on batching as one HTML page: the cases, and what each mode makes of the workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headway.planning.advice import Advice
from headway.planning.advice_modes import ModeResult
from headway.planning.advice_shown import MODE_HEAD, finding_rows, mode_rows
from headway.planning.fleets import spread
from headway.planning.shown import bar_chart, drawn, page, paragraph
from headway.report.charts import Drawing
from headway.report.page import table
from headway.report.report import Fact
from headway.report.text import duration, number, percent


def advice_page(
    found: Advice, name: str, facts: Mapping[str, Fact], warnings: Iterable[str]
) -> str:
    """Return the page: no script, no network."""
    charts = [
        _bars(found, "Full load", "output tokens a second", lambda x: x.full_throughput, number),
        _bars(found, "End to end, p99", "at the load given", lambda x: x.p99_e2el_s, duration),
        _bars(found, "First token, p99", "at the load given", lambda x: x.p99_ttft_s, duration),
    ]
    if any(each.attained is not None for each in found.modes.values()):
        charts.append(
            _bars(found, "In time", "of all requests", lambda x: x.attained or 0.0, percent)
        )
    body = [
        paragraph(f"{found.verdict}: {found.advice}"),
        table(("case", "applies", "figure"), finding_rows(found)),
        drawn(charts),
        table(MODE_HEAD, mode_rows(found)),
    ]
    return page(name, body, facts, warnings)


def _bars(
    found: Advice,
    title: str,
    note: str,
    figure: Callable[[ModeResult], float],
    show: Callable[[float], str],
) -> Drawing:
    figures = {mode: spread([figure(each)]) for mode, each in found.modes.items()}
    return bar_chart(title, note, figures, show)
