"""A workload through the real scheduler and the real loop, in virtual time.

Nothing here decides anything: the scheduler is the one that serves, the clock is told what each
step costs, and everything that happens is written down.
"""

from headway.sim.naming import request_id_of
from headway.sim.oracle import Inverted, Noisy, Oracle
from headway.sim.records import RequestRecord, Sample, SimulationResult, StepSeries
from headway.sim.report import ClassReport, report_by_class
from headway.sim.simulation import simulate

__all__ = [
    "ClassReport",
    "Inverted",
    "Noisy",
    "Oracle",
    "RequestRecord",
    "Sample",
    "SimulationResult",
    "StepSeries",
    "report_by_class",
    "request_id_of",
    "simulate",
]
