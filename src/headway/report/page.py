"""A report as one HTML page: no script, no network, light and dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from headway.report.charts import Drawing, charts
from headway.report.figures import Distribution, Figures
from headway.report.report import Fact, Report
from headway.report.style import STYLE
from headway.report.text import duration, number, percent
from headway.workload import Targets

Table = tuple[Sequence[str], Iterable[Sequence[str]]]
"""(heads of the columns, rows); the first column is text, all others are numbers."""

_LATENCIES = (
    ("time to first token", "ttft"),
    ("per further token", "tpot"),
    ("between pieces", "itl"),
    ("end to end", "e2el"),
    ("queueing", "queue"),
    ("sent later than due", "late"),
)


def page(report: Report, tables: Sequence[tuple[str, Table]] = ()) -> str:
    """Return the page; ``tables`` are shown first, each under its title."""
    body = [
        f"<h1>{escape(report.title)}</h1>",
        *(f'<p class="warning">{escape(each)}</p>' for each in report.warnings),
        _cards(report),
        *(f"<h2>{escape(title)}</h2>{table(*each)}" for title, each in tables),
        *_groups(report),
        '<div class="charts">',
        *map(figure, charts(report)),
        "</div>",
        *_ramp(report),
        *_facts(report),
    ]
    return document(report.title, body)


def document(title: str, body: Iterable[str]) -> str:
    """Return a whole page around a body."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def facts_table(facts: Mapping[str, Fact]) -> str:
    """Return how something was measured, as a section."""
    rows = ((name, str(value)) for name, value in facts.items() if value is not None)
    found = table(("", ""), rows).replace("<table>", '<table class="facts">')
    return f"<h2>How it was measured</h2>{found}"


def _cards(report: Report) -> str:
    overall = report.overall
    ttft, tpot = overall.latencies.ttft, overall.latencies.tpot
    cards = [
        ("completed", f"{overall.num_completed:,} of {overall.num_requests:,}"),
        ("requests a second", number(overall.a_second(overall.num_completed))),
        ("output tokens a second", number(overall.a_second(overall.output_tokens))),
        ("first token, p99", duration(None if ttft is None else ttft.p99)),
        ("further token, p99", duration(None if tpot is None else tpot.p99)),
    ]
    if report.targets:
        cards.append(("met all targets", percent(overall.attained)))
    if report.knee is not None:
        cards.append(("knee", f"{number(report.knee)} requests/s"))
    shown = (
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in cards
    )
    return f'<div class="cards">{"".join(shown)}</div>'


def _groups(report: Report) -> Iterator[str]:
    yield "<h2>Classes</h2>"
    yield _summary("class", report.classes)
    for name, measured in report.classes.items():
        if len(report.classes) > 1:
            yield f"<h3>{escape(name)}</h3>"
        yield _latencies(measured)
    if report.tenants:
        yield "<h2>Tenants</h2>"
        yield _summary("tenant", report.tenants)
    if report.overall.errors:
        yield "<h2>Errors</h2>"
        yield table(("kind", "requests", "the first"), _error_rows(report.overall))


def _error_rows(measured: Figures) -> Iterator[tuple[str, str, str]]:
    for kind, count in measured.errors.items():
        yield kind, f"{count:,}", measured.details.get(kind, "–")


def _summary(what: str, groups: Mapping[str, Figures]) -> str:
    head = (
        what,
        "requests",
        "completed",
        "failed",
        "went away",
        "stalled",
        "requests/s",
        "output tokens/s",
        "targets",
        "goodput/s",
        "in time",
    )
    return table(head, (_summary_row(name or "–", each) for name, each in groups.items()))


def _summary_row(name: str, measured: Figures) -> tuple[str, ...]:
    promised = measured.targets is not None
    return (
        name,
        f"{measured.num_requests:,}",
        f"{measured.num_completed:,}",
        f"{measured.num_failed + measured.num_unfinished:,}",
        f"{measured.num_cancelled:,}",
        f"{measured.num_stalled:,}",
        number(measured.a_second(measured.num_completed)),
        number(measured.a_second(measured.output_tokens)),
        _promise(measured.targets),
        number(measured.goodput) if promised else "–",
        percent(measured.attained) if promised else "–",
    )


def _promise(targets: Targets | None) -> str:
    if targets is None:
        return "–"
    named = (("first", targets.ttft_s), ("further", targets.tpot_s), ("end", targets.e2el_s))
    return ", ".join(f"{name} {duration(value)}" for name, value in named if value is not None)


def _latencies(measured: Figures) -> str:
    head = ("", "mean", "p50", "p90", "p99", "p99.9", "max", "values")
    rows = [
        (name, *_cells(values))
        for name, metric in _LATENCIES
        if (values := getattr(measured.latencies, metric)) is not None
        and (metric != "late" or values.most > 0)  # a simulated client never is
    ]
    return table(head, rows)


def _cells(values: Distribution) -> list[str]:
    figures = (values.mean, values.p50, values.p90, values.p99, values.p999, values.most)
    return [*map(duration, figures), f"{len(values.values):,}"]


def figure(drawing: Drawing) -> str:
    """Return a chart with its title and legend."""
    legend = "".join(
        f'<span><i class="c{colour}"></i>{escape(name)}</span>'
        for colour, name in enumerate(drawing.legend)
    )
    return (
        f"<figure><figcaption><b>{escape(drawing.title)}</b> {escape(drawing.note)}</figcaption>"
        f'{drawing.svg}<div class="legend">{legend}</div></figure>'
    )


def _ramp(report: Report) -> Iterator[str]:
    if not report.ramp:
        return
    yield "<h2>Ramp</h2>"
    yield table(
        ("offered/s", "completed/s", "tokens/s", "goodput/s", "in time", "TTFT p99", "TPOT p99"),
        (
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
        ),
    )


def _facts(report: Report) -> Iterator[str]:
    yield facts_table(report.facts)
    yield (
        "<p class='note'>Times are those that the client saw. Time to first token and end to end "
        "count from when a request was due, so what is sent late counts against it. Time per "
        "further token is (end − first token) / (output tokens − 1). Latencies are of requests "
        "that were completed by clients that read.</p>"
    )
