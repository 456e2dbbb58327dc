"""How advice is shown: figures over several seeds, rows of a CSV file, parts of a page."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any, TextIO

from headway.planning.fleets import Spread
from headway.report.bars import Bar, bars
from headway.report.charts import Drawing
from headway.report.page import document, facts_table, figure
from headway.report.report import Fact
from headway.report.text import duration, percent

Rows = list[tuple[str, ...]]


def seconds(value: float) -> str:
    """Return a time; a dash if it is infinite, since nothing was measured."""
    return duration(value if isfinite(value) else None)


def share_of(each: Spread) -> str:
    """Return a share over the seeds, with its range if there is one."""
    if each.least == each.most:
        return percent(each.mean)
    low, high = percent(each.least).removesuffix(" %"), percent(each.most)
    return f"{percent(each.mean)} ({low} – {high})"


def finite(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return values for JSON, which knows no infinity."""
    return {k: v if v is not None and isfinite(v) else None for k, v in values.items()}


def write_rows(rows: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    """Write rows as CSV; a figure over seeds takes a column each for mean, least and most."""
    flat = [_flat(row) for row in rows]
    writer = csv.DictWriter(file, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{key}_{name}": each for name, each in value.items()}
        else:
            found[key] = value
    return found


def page(name: str, body: Iterable[str], facts: Mapping[str, Fact], warnings: Iterable[str]) -> str:
    """Return a page: a title, warnings, what stands in it, and how it was measured."""
    parts = [
        f"<h1>{escape(name)}</h1>",
        *(f'<p class="warning">{escape(each)}</p>' for each in warnings),
        *body,
        facts_table(facts),
    ]
    return document(name, parts)


def paragraph(text: str) -> str:
    """Return a paragraph of a page."""
    return f"<p>{escape(text)}</p>"


def bar_chart(
    title: str, note: str, figures: Mapping[str, Spread], show: Callable[[float], str]
) -> Drawing:
    """Return a bar for each figure; what was not measured with each seed has none."""
    chosen = [
        Bar(name, each.mean, each.least, each.most, show(each.mean))
        for name, each in figures.items()
        if isfinite(each.most)
    ]
    return Drawing(title, note, bars(title, chosen), ())


def drawn(drawings: Iterable[Drawing]) -> str:
    """Return charts side by side."""
    return f'<div class="charts">{"".join(map(figure, drawings))}</div>'
