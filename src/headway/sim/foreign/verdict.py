"""Holds a replay against its bounds, and its controls against them too: those must miss one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.sim.foreign.figures import FIGURES, Figure, Figures, errors
from headway.sim.foreign.replay import Replayed, replay
from headway.sim.foreign.saved import read_run
from headway.sim.foreign.setups import Setup


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: both values, the error in percent, and what is allowed, if anything is."""

    figure: Figure
    real: float
    simulated: float
    error: float
    bound: float | None
    published: float | None

    @property
    def holds(self) -> bool:
        """Whether the error is within its bound."""
        return self.bound is None or abs(self.error) <= self.bound


@dataclass(frozen=True, slots=True)
class ControlVerdict:
    """A replay that is wrong on purpose: the figure that is furthest beyond its bound."""

    what: str
    worst: Row

    @property
    def is_caught(self) -> bool:
        """Whether the bounds see that it is wrong."""
        return not self.worst.holds


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """How true the replay of one run is."""

    setup: Setup
    rows: tuple[Row, ...]
    replayed: Replayed
    controls: tuple[ControlVerdict, ...]

    @property
    def worst(self) -> Row:
        """The row with the largest error among those that have a bound."""
        return _worst(self.rows, lambda row: abs(row.error))

    @property
    def holds(self) -> bool:
        """Whether every figure is within its bound, and every control is caught."""
        return all(row.holds for row in self.rows) and all(c.is_caught for c in self.controls)


def judge(folder: Path, setup: Setup) -> RunVerdict:
    """Replay a run and its controls.

    Raises:
        WorkloadError: the run can't be read.
        ProfileError: the measured kernels can't be read.
    """
    data = read_run(folder, setup)
    replayed = replay(folder, setup, data)
    rows = compare(replayed.figures, data.real, setup.bounds, setup.published)
    controls = []
    for control in setup.controls:
        wrong = replay(folder, control.applied_to(setup), data)
        compared = compare(wrong.figures, data.real, setup.bounds, setup.published)
        worst = _worst(compared, lambda row: abs(row.error) / (row.bound or 1.0))
        controls.append(ControlVerdict(control.what, worst))
    return RunVerdict(setup, rows, replayed, tuple(controls))


def compare(
    simulated: Figures, real: Figures, bounds: Mapping[str, float], published: Mapping[str, float]
) -> tuple[Row, ...]:
    """Return a row for each figure."""
    found = errors(simulated, real)
    return tuple(
        Row(
            figure,
            real[figure.key],
            simulated[figure.key],
            found[figure.key],
            bounds.get(figure.key),
            published.get(figure.key),
        )
        for figure in FIGURES
    )


def _worst(rows: tuple[Row, ...], by: Callable[[Row], float]) -> Row:
    return max((row for row in rows if row.bound is not None), key=by)
