"""Runs of another engine, recorded on real devices, replayed by Headway's scheduler.

Nothing is fitted on the run that is judged: step times come from kernels that were measured apart,
and everything else is declared in :mod:`headway.sim.foreign.setups`, with its source.
"""

from headway.sim.foreign.figures import FIGURES, Figure, Figures, errors
from headway.sim.foreign.replay import Replayed, replay
from headway.sim.foreign.saved import RunData, read_run
from headway.sim.foreign.setups import SETUPS, Control, Setup
from headway.sim.foreign.verdict import ControlVerdict, Row, RunVerdict, judge

__all__ = [
    "FIGURES",
    "SETUPS",
    "Control",
    "ControlVerdict",
    "Figure",
    "Figures",
    "Replayed",
    "Row",
    "RunData",
    "RunVerdict",
    "Setup",
    "errors",
    "judge",
    "read_run",
    "replay",
]
