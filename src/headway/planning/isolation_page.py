"""Shared and separate pools as one HTML page: the table, and charts for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from headway.planning.fleets import attained, p99_ttft_s
from headway.planning.isolation import Isolation, Pools
from headway.planning.isolation_shown import HEAD, of_class, pool_rows
from headway.planning.isolation_verdict import choose
from headway.planning.shown import bar_chart, drawn, page, paragraph, seconds
from headway.report import Figures
from headway.report.charts import Drawing, distributions
from headway.report.page import table
from headway.report.report import Fact
from headway.report.text import percent


def isolation_page(
    found: Isolation, name: str, facts: Mapping[str, Fact], warnings: Iterable[str]
) -> str:
    """Return the page: no script, no network."""
    body = [
        paragraph(choose(found).advice),
        table(HEAD, pool_rows(found)),
        drawn(_drawings(found)),
    ]
    return page(name, body, facts, warnings)


def _drawings(found: Isolation) -> Iterator[Drawing]:
    shared, best = found.judged
    for name in found.shared.runs[0].classes:
        yield _bars(found, f"{name}: in time", name, attained, percent)
        yield _bars(found, f"{name}: time to first token, p99", name, p99_ttft_s, seconds)
        groups = {
            "one pool": shared.runs[0].classes[name],
            f"separate, {_short(best)}": best.runs[0].classes[name],
        }
        for title, metric in (("time to first token", "ttft"), ("per further token", "tpot")):
            drawing = distributions(groups, f"{name}: {title}", metric, "with one of the seeds")
            if drawing is not None:
                yield drawing


def _bars(
    found: Isolation,
    title: str,
    class_name: str,
    figure: Callable[[Figures], float],
    show: Callable[[float], str],
) -> Drawing:
    every = (found.shared, *found.separate)
    figures = {_short(pools): pools.of(of_class(class_name, figure)) for pools in every}
    order = " + ".join(found.shared.runs[0].classes)
    return bar_chart(title, f"by instances of {order}", figures, show)


def _short(pools: Pools) -> str:
    return " + ".join(map(str, pools.division.values())) or "one pool"
