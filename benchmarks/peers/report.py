"""The table: a row for each figure, a column for each engine, and what the columns are."""

from __future__ import annotations

from benchmarks.peers.results import Cell, EngineResult, Row, ShapeResult
from benchmarks.table import aligned, markdown

_LEGEND = """\
Tokens a second: the median of the rounds, ± half the range in percent. Ratio: {headway} over the
best peer, the median of the ratios of each round. Fork-join: what an empty parallel region took
beside {headway}'s measurements / the best peer's; figures compare where these do."""


def legend(headway: str) -> str:
    return _LEGEND.format(headway=headway)


def figures(result: ShapeResult, rows: list[Row], headway: str, *, as_markdown: bool) -> str:
    names = [name for name in result.engines if any(name in row.cells for row in rows)]
    head = [result.label, *names, "ratio", "target", "met", "fork-join ns"]
    lines = [_figure(row, names, headway) for row in rows]
    return markdown(head, lines) if as_markdown else aligned(head, lines)


def _figure(row: Row, names: list[str], headway: str) -> list[str]:
    cells = [_rate(row.cells.get(name), is_best=name == row.best_peer) for name in names]
    target = "" if row.target is None else f"{row.target:.2f}"
    met = {True: "yes", False: "no", None: ""}[row.is_met]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [row.label, *cells, ratio, target, met, _latencies(row, headway)]


def _rate(cell: Cell | None, *, is_best: bool) -> str:
    if cell is None:
        return "–"
    mark = "*" if is_best else ""
    return f"{mark}{cell.median:.{0 if cell.median >= 100 else 1}f} ±{100 * cell.spread:.0f}"


def _latencies(row: Row, headway: str) -> str:
    both = [row.cells.get(headway), row.cells.get(row.best_peer or "")]
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
