"""The table: a row for each figure, a column for each engine, and what the columns are."""

from __future__ import annotations

from benchmarks.peers.results import Cell, EngineResult, Row, ShapeResult
from benchmarks.table import aligned, markdown

_LEGEND = """\
Tokens a second: the median of the rounds, ± half the range in percent. * is the best of a side.
Ratio: the best of Headway's rows over the best peer, the median of the ratios of each round;
default: that of {headway} alone. Fork-join: what an empty parallel region took beside the
measurements of the best row / the best peer; figures compare where these do."""


def legend(headway: str) -> str:
    return _LEGEND.format(headway=headway)


def figures(result: ShapeResult, rows: list[Row], *, as_markdown: bool) -> str:
    names = [name for name in result.engines if any(name in row.cells for row in rows)]
    head = [result.label, *names, "ratio", "default", "target", "met", "fork-join ns"]
    lines = [_figure(row, names) for row in rows]
    return markdown(head, lines) if as_markdown else aligned(head, lines)


def _figure(row: Row, names: list[str]) -> list[str]:
    best = (row.best_own, row.best_peer)
    cells = [_rate(row.cells.get(name), is_best=name in best) for name in names]
    met = {True: "yes", False: "no", None: ""}[row.is_met]
    numbers = [_number(each) for each in (row.ratio, row.default_ratio, row.target)]
    return [row.label, *cells, *numbers, met, _latencies(row)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _rate(cell: Cell | None, *, is_best: bool) -> str:
    if cell is None:
        return "–"
    mark = "*" if is_best else ""
    return f"{mark}{cell.median:.{0 if cell.median >= 100 else 1}f} ±{100 * cell.spread:.0f}"


def _latencies(row: Row) -> str:
    both = [row.cells.get(row.best_own or ""), row.cells.get(row.best_peer or "")]
    return " / ".join(f"{cell.fork_join_ns:.0f}" if cell else "–" for cell in both)


def engines(result: ShapeResult, *, as_markdown: bool) -> str:
    """Return what each column is: version, start, accuracy, setting; or why it is not there."""
    head = ["engine", "version", "start to ready", "mean KL", "top-1"]
    lines = [_engine(engine) for engine in result.engines.values()]
    if as_markdown:
        return markdown([*head, "setting"], lines)
    settings = [f"{name}: {setting}" for name, *_, setting in lines]
    return "\n".join([aligned(head, [line[:-1] for line in lines]), "", *settings])


def _engine(engine: EngineResult) -> list[str]:
    start = "–" if engine.start_s is None else f"{engine.start_s:.1f} s"
    kl = "–" if engine.mean_kl is None else f"{engine.mean_kl:.4f}"
    top_1 = "–" if engine.top_1 is None else f"{100 * engine.top_1:.1f} %"
    note = f" ({engine.accuracy_note})" if engine.accuracy_note else ""
    failure = f"; FAILED: {engine.error}" if engine.error else ""
    return [engine.name, engine.version or "–", start, kl, top_1, engine.setting + note + failure]
