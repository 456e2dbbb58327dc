"""A trade as one HTML page: for each window tables, and charts by instances and batch limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import isfinite
from typing import NamedTuple

from headway.planning.shown import drawn, page, paragraph
from headway.planning.trade_found import Outcome, Trade, Traded
from headway.planning.trade_shown import (
    GAIN_HEAD,
    HEAD,
    checks,
    gain_rows,
    setting_rows,
    title,
)
from headway.planning.trade_verdict import decide, summary
from headway.report.charts import Drawing
from headway.report.page import table
from headway.report.report import Fact
from headway.report.scales import Linear, Scale, around
from headway.report.svg import Chart, Point


def trade_page(trade: Trade, name: str, facts: Mapping[str, Fact], warnings: Iterable[str]) -> str:
    """Return the page: no script, no network."""
    body = [paragraph(summary(trade).advice)]
    for each in trade.windows:
        body += _window(each)
    return page(name, body, facts, warnings)


def _window(traded: Traded) -> Iterator[str]:
    yield f"<h2>{escape(title(traded))}</h2>"
    yield paragraph(decide(traded).advice)
    yield from map(paragraph, checks(traded))
    yield table(GAIN_HEAD, gain_rows(traded))
    yield drawn(_drawing(traded, each) for each in _CHARTS)
    yield table(HEAD, setting_rows(traded, list(traded.outcomes.values())))


class _Figure(NamedTuple):
    """A figure that is drawn over the instances, with a line for each batch limit."""

    title: str
    note: str
    of: Callable[[Outcome], float]
    scale: Callable[[Sequence[float]], Scale]


def _percent(_: Sequence[float]) -> Scale:
    return Linear(0, 100, "%")


def _times(values: Sequence[float]) -> Scale:
    return around(min(values, default=1.0), max(values, default=1.0))


_CHARTS = (
    _Figure(
        "In time",
        "requests that keep their targets",
        lambda each: 100 * each.of("attained").mean,
        _percent,
    ),
    _Figure(
        "Unused",
        "share of what the instances can do at full load",
        lambda each: 100 * each.headroom.mean,
        _percent,
    ),
    _Figure(
        "Time to first token, p99",
        "of the requests that were completed",
        lambda each: each.of("p99_ttft_s").mean,
        _times,
    ),
    _Figure(
        "Time per further token, p99",
        "of the requests that were completed",
        lambda each: each.of("p99_tpot_s").mean,
        _times,
    ),
)


def _drawing(traded: Traded, drawn_one: _Figure) -> Drawing:
    lines = _lines(traded, drawn_one)
    counts = [each.instances for each in traded.outcomes]
    values = [value for points in lines.values() for _, value in points]
    chart = Chart(
        Linear(min(counts) - 0.5, max(counts) + 0.5),
        drawn_one.scale(values),
        description=f"{drawn_one.title} at {traded.window.name} by instances",
    )
    for colour, (name, points) in enumerate(lines.items()):
        chart.line(points, colour, name)
        chart.dots(points, colour, name)
    present = list(lines).index(_limit(traded.base.batch_limit))
    chart.upright(traded.base.instances, present, "at present")
    note = f"{drawn_one.note}, by the number of instances; dashed: at present"
    return Drawing(f"{drawn_one.title}: {traded.window.name}", note, chart.render(), list(lines))


def _lines(traded: Traded, drawn_one: _Figure) -> dict[str, list[Point]]:
    """Return (instances, figure) for each batch limit; what was not measured is left out."""
    lines: dict[str, list[Point]] = {}
    for setting, outcome in traded.outcomes.items():
        line = lines.setdefault(_limit(setting.batch_limit), [])
        value = drawn_one.of(outcome)
        if isfinite(value):
            line.append((setting.instances, value))
    return lines


def _limit(batch_limit: int) -> str:
    return f"batches of {batch_limit}"
