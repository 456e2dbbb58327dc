"""A comparison as one HTML page, of the parts of which all pages are made."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from headway.report.bars import Bar, bars
from headway.report.charts import Drawing, distributions
from headway.report.comparison import COLUMNS, Column, Comparison, comparison_table, gains
from headway.report.page import document, facts_table, figure, table

_DISTRIBUTIONS = (
    ("Time to first token", "ttft", "from when the request was due"),
    ("Time per further token", "tpot", "one value a request"),
    ("Time between tokens", "itl", "one value a gap"),
    ("End to end", "e2el", "from when the request was due"),
)
_TITLES = {
    "output_throughput": ("Throughput", "output tokens a second"),
    "ms_per_token": ("Time per token", "from first running to the end, over the output tokens"),
    "padding_share": ("Padding", "share of the computed positions that nobody needed"),
}


def comparison_page(comparison: Comparison) -> str:
    """Return the page: no script, no network."""
    body = [
        f"<h1>{escape(comparison.title)}</h1>",
        *(f'<p class="warning">{escape(each)}</p>' for each in comparison.warnings),
        table(*comparison_table(comparison)),
        *(f'<p class="note">{escape(each)}</p>' for each in _notes(comparison)),
        '<div class="charts">',
        *map(figure, _drawings(comparison)),
        "</div>",
        facts_table(comparison.facts),
    ]
    return document(comparison.title, body)


def _notes(comparison: Comparison) -> Iterator[str]:
    yield from gains(comparison)
    yield from (each.note for each in comparison.rows if each.note)


def _drawings(comparison: Comparison) -> Iterator[Drawing]:
    for column in COLUMNS:
        if column.key in _TITLES:
            title, note = _TITLES[column.key]
            yield Drawing(title, note, bars(f"{title} by mode", _bars(comparison, column)), ())
    groups = {each.title: each.first for each in comparison.rows}
    for name, metric, note in _DISTRIBUTIONS:
        drawing = distributions(groups, name, metric, note)
        if drawing is not None:
            yield drawing


def _bars(comparison: Comparison, column: Column) -> list[Bar]:
    found = []
    for row in comparison.rows:
        value, values = row.middle(column.key), row.values(column.key)
        if value is not None:
            found.append(Bar(row.title, value, min(values), max(values), column.show(value)))
    return found
