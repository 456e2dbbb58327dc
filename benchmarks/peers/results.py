"""Measurements, and what follows from them: medians, spreads, and ratios round by round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.cases import Case, Figure, rate
from benchmarks.peers.protocol import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One engine did one case once. ``fork_join_ns`` says in which state the machine was."""

    case: str
    engine: str
    round: int
    timing: Timing
    fork_join_ns: float


@dataclass(slots=True, kw_only=True)
class EngineResult:
    """What is known of an engine beside its times; ``error`` is why it has none, or no more."""

    name: str
    setting: str
    is_headway: bool
    version: str = ""
    start_s: float | None = None
    error: str | None = None
    mean_kl: float | None = None
    top_1: float | None = None
    accuracy_note: str = ""


@dataclass(slots=True, kw_only=True)
class ShapeResult:
    """All of one model."""

    name: str
    label: str
    engines: dict[str, EngineResult] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure of one engine.

    ``spread`` is half the distance between the slowest and the fastest round, over the median.
    """

    median: float
    spread: float
    fork_join_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of all engines.

    ``ratio`` is that of the best of Headway's rows over the best of the peers', since both sides
    have several; ``default_ratio`` is that of Headway's default.
    """

    label: str
    cells: dict[str, Cell]
    best_peer: str | None
    best_own: str | None
    ratio: float | None
    default_ratio: float | None
    target: float | None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where there is none, or no peer."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target


def rows(result: ShapeResult, cases: Iterable[Case], headway: str) -> list[Row]:
    """Return a row for each figure; ``headway`` is the row of Headway's default."""
    return [_row(result, case, figure, headway) for case in cases for figure in case.figures]


def _row(result: ShapeResult, case: Case, figure: Figure, headway: str) -> Row:
    of_engine: dict[str, dict[int, float]] = {}
    latencies: dict[str, list[float]] = {}
    for each in result.measurements:
        if each.case == case.name:
            rates = of_engine.setdefault(each.engine, {})
            rates[each.round] = rate(figure.kind, case, each.timing)
            latencies.setdefault(each.engine, []).append(each.fork_join_ns)
    cells = {name: _cell(list(r.values()), latencies[name]) for name, r in of_engine.items()}
    own = _best(cells, [name for name in cells if result.engines[name].is_headway])
    best = _best(cells, [name for name in cells if not result.engines[name].is_headway])

    def ratio(name: str | None) -> float | None:
        if name is None or best is None or name not in of_engine:
            return None
        return _paired_ratio(of_engine[name], of_engine[best])

    return Row(
        label=figure.label,
        cells=cells,
        best_peer=best,
        best_own=own,
        ratio=ratio(own),
        default_ratio=ratio(headway),
        target=figure.target,
    )


def _best(cells: dict[str, Cell], names: list[str]) -> str | None:
    return max(names, key=lambda name: cells[name].median, default=None)


def _cell(rates: Sequence[float], latencies: Sequence[float]) -> Cell:
    median = statistics.median(rates)
    return Cell(
        median=median,
        spread=(max(rates) - min(rates)) / 2 / median,
        fork_join_ns=statistics.median(latencies),
    )


def _paired_ratio(ours: dict[int, float], theirs: dict[int, float]) -> float | None:
    """Return the median of the ratios of each round: both sides met the machine as it was then."""
    ratios = [ours[i] / theirs[i] for i in ours.keys() & theirs.keys()]
    return statistics.median(ratios) if ratios else None


def plain_row(row: Row) -> dict[str, Any]:
    """Return a row as it goes into the JSON."""
    return {
        "figure": row.label,
        "tokens_per_s": {
            name: {"median": c.median, "spread": c.spread, "fork_join_ns": c.fork_join_ns}
            for name, c in row.cells.items()
        },
        "best_peer": row.best_peer,
        "best_own": row.best_own,
        "ratio": row.ratio,
        "default_ratio": row.default_ratio,
        "target": row.target,
        "met": row.is_met,
    }
