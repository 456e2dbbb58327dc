"""The charts of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10

from headway.metrics.quantiles import quantiles
from headway.report.activity import (
    completed_at,
    counts_by_bin,
    output_tokens_by_bin,
    under_way,
)
from headway.report.figures import Distribution, Figures
from headway.report.report import Report
from headway.report.scales import Linear, Tail, around
from headway.report.svg import Chart, Point
from headway.report.text import duration

_NUM_POINTS = 160
_MOST_NINES = 4.0
#: as many bins as have this many requests each, but not too few or too many
_REQUESTS_A_BIN, _FEWEST_BINS, _MOST_BINS = 5, 12, 120
_MOST_DOTS = 3000


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart with what stands around it; ``legend`` has a name for each colour from 0 on."""

    title: str
    note: str
    svg: str
    legend: Sequence[str]


def charts(report: Report) -> Iterator[Drawing]:
    """Yield those charts for which there is something to draw."""
    for name, metric, note in (
        ("Time to first token", "ttft", "from when the request was due"),
        ("Time per further token", "tpot", "one value a request"),
        ("Time between pieces", "itl", "one value a gap"),
        ("End to end", "e2el", "from when the request was due"),
        ("Queueing", "queue", "from when the request was due until it first ran"),
    ):
        drawing = distributions(report.classes, name, metric, note)
        if drawing is not None:
            yield drawing
    if report.overall.duration_s > 0 and report.records:
        yield _rates(report)
        yield _concurrency(report)
        yield _tokens(report)
        yield from _over_time(report)
    if len(report.ramp) > 1:
        yield _ramp(report)


def distributions(
    groups: Mapping[str, Figures], name: str, metric: str, note: str
) -> Drawing | None:
    """Return a chart with a line for each group; None if none of them has measured it."""
    measured = {
        group: values
        for group, figures in groups.items()
        if (values := _measured(figures, metric)) is not None
    }
    if not measured:
        return None
    targets = {
        group: target
        for group in measured
        if (target := getattr(groups[group].targets, f"{metric}_s", None)) is not None
    }
    ends = [end for each in measured.values() for end in (each.least, each.most)]
    ends += targets.values()
    x = around(min(ends), max(ends))
    most = max(len(each.values) for each in measured.values())
    nines = min(max(log10(most), 1.0), _MOST_NINES)
    chart = Chart(x, Tail(nines), description=f"{name}: share of values below a time")
    for colour, (group, values) in enumerate(measured.items()):
        told = f"{group}: p50 {duration(values.p50)}, p99 {duration(values.p99)}"
        chart.line(_shares(values, nines), colour, told)
        if group in targets:
            chart.upright(targets[group], colour, f"{group}: target {duration(targets[group])}")
    return Drawing(name, f"share of values below a time; {note}", chart.render(), list(measured))


def _measured(figures: Figures, metric: str) -> Distribution | None:
    found: Distribution | None = getattr(figures.latencies, metric)
    return found


def _shares(values: Distribution, nines: float) -> list[Point]:
    """Return (time, share) at places that lie evenly on the axis of shares."""
    reach = min(nines, log10(max(len(values.values), 2)))
    shares = [1 - 10 ** (-reach * i / _NUM_POINTS) for i in range(_NUM_POINTS + 1)]
    return list(zip(quantiles(values.values, shares), shares, strict=True))


def _rates(report: Report) -> Drawing:
    end_s, num_bins = _span(report)
    width_s = end_s / num_bins
    lines = {
        "due": counts_by_bin((each.due_s for each in report.records), width_s, num_bins),
        "completed": counts_by_bin(completed_at(report.records), width_s, num_bins),
    }
    return _stepped(
        "Requests",
        f"a second, in stretches of {duration(width_s)}",
        {name: [count / width_s for count in counts] for name, counts in lines.items()},
        end_s,
    )


def _tokens(report: Report) -> Drawing:
    end_s, num_bins = _span(report)
    width_s = end_s / num_bins
    counts = output_tokens_by_bin(report.records, width_s, num_bins)
    rates = {"output tokens": [count / width_s for count in counts]}
    note = f"that came a second, in stretches of {duration(width_s)}"
    return _stepped("Output tokens", note, rates, end_s)


def _concurrency(report: Report) -> Drawing:
    end_s, _ = _span(report)
    levels = under_way(report.records)
    y = Linear(0, max((level for _, level in levels), default=1) * 1.05)
    chart = Chart(Linear(0, end_s, "s"), y, description="Requests under way over time")
    chart.steps(_thinned(levels, 2000), 0, "requests under way")
    return Drawing("Under way", "requests due and not ended", chart.render(), ["under way"])


def _over_time(report: Report) -> Iterator[Drawing]:
    by_class = {
        name: [
            (each.due_s, each.ttft_s)
            for each in report.records
            if each.class_name == name and each.is_measured and each.ttft_s is not None
        ]
        for name in report.classes
    }
    by_class = {name: points for name, points in by_class.items() if points}
    if not by_class:
        return
    every = [ttft for points in by_class.values() for _, ttft in points]
    end_s, _ = _span(report)
    x, y = Linear(0, end_s, "s"), around(min(every), max(every))
    chart = Chart(x, y, description="Time to first token of each request")
    for colour, (name, points) in enumerate(by_class.items()):
        chart.dots(_thinned(points, _MOST_DOTS), colour, name)
    num_shown = sum(len(_thinned(points, _MOST_DOTS)) for points in by_class.values())
    part = "" if num_shown == len(every) else f" ({num_shown:,} of {len(every):,} shown)"
    note = f"each request, by when it was due{part}"
    yield Drawing("Time to first token over time", note, chart.render(), list(by_class))


def _ramp(report: Report) -> Drawing:
    lines: Mapping[str, Sequence[float]] = {
        "completed": [step.request_throughput for step in report.ramp],
        "in time": [step.goodput for step in report.ramp],
    }
    rates = [step.request_rate for step in report.ramp]
    most = max(max(values) for values in lines.values())
    chart = Chart(
        Linear(0, max(rates) * 1.02, "/s"),
        Linear(0, (most or 1) * 1.08, "/s"),
        description="Requests completed, and completed in time, by the rate that was offered",
    )
    for colour, (name, values) in enumerate(lines.items()):
        chart.line(list(zip(rates, values, strict=True)), colour, name)
    if report.knee is not None:
        chart.upright(report.knee, 2, f"knee at {report.knee:.3g} requests a second")
    note = "requests a second, by the rate that was offered"
    return Drawing("Ramp", note, chart.render(), list(lines))


def _stepped(title: str, note: str, lines: Mapping[str, Sequence[float]], end_s: float) -> Drawing:
    highest = max(max(values) for values in lines.values())
    y = Linear(0, (highest or 1.0) * 1.05)
    chart = Chart(Linear(0, end_s, "s"), y, description=f"{title} over time")
    for colour, (name, values) in enumerate(lines.items()):
        width_s = end_s / len(values)
        points = [(number * width_s, value) for number, value in enumerate(values)]
        chart.steps([*points, (end_s, values[-1])], colour, name)
    return Drawing(title, note, chart.render(), list(lines))


def _span(report: Report) -> tuple[float, int]:
    """Return when the last thing happened, and the number of bins until then."""
    last_s = max(max(each.due_s, each.ended_s or 0.0) for each in report.records)
    end_s = max(last_s, report.overall.duration_s, 1e-6)
    num_bins = len(report.records) // _REQUESTS_A_BIN
    return end_s, min(max(num_bins, _FEWEST_BINS), _MOST_BINS)


def _thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    step = -(-len(points) // most)
    return points if step <= 1 else points[::step]
