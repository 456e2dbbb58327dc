"""What questions about a fleet share: its machines, what was promised, and figures over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean

from headway.core.config import SchedulerConfig
from headway.report.figures import Figures, promised
from headway.sim.replica import Machine
from headway.workload import Workload

MakeMachines = Callable[[int, int], Sequence[Machine]]
"""Returns so many machines for a seed, new ones at each call: their slow stretches go on."""

#: targets are promised for so many requests, as ``ttft_p99_ms`` and its kin say
PROMISED_SHARE = 0.99
#: a gain in the attained share that is less isn't worth a change: one request in a hundred
WORTH = 0.01


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over several seeds."""

    mean: float
    least: float
    most: float


def spread(values: Iterable[float]) -> Spread:
    """Return mean, least and most; a mean with an infinite value is infinite."""
    each = list(values)
    return Spread(fmean(each), min(each), max(each))


def attained(each: Figures) -> float:
    """Return the share of requests in time; 1 if there was none to be judged."""
    return 1.0 if each.attained is None else each.attained


def p99_ttft_s(each: Figures) -> float:
    """Return the p99 of the time to first token; infinite if nothing was completed."""
    return each.latencies.ttft.p99 if each.latencies.ttft else inf


def p99_tpot_s(each: Figures) -> float:
    """Return the p99 of the time for each further token; infinite if there was none."""
    return each.latencies.tpot.p99 if each.latencies.tpot else inf


def check_workloads(workloads: Sequence[Workload], config: SchedulerConfig) -> None:
    """Check that their requests can be weighed by promises.

    Raises:
        ValueError: there are closed loops or no requests, nothing is promised to those who come,
            or a class isn't configured.
    """
    if any(each.loops for each in workloads):
        raise ValueError("advice needs requests in open loop, not a closed one")
    if not all(each.arrivals for each in workloads):
        raise ValueError("no requests come, at least with one of the seeds: say a longer workload")
    targets, names = workloads[0].targets, class_names(workloads)
    if not any(promised(targets, name) for name in names):
        raise ValueError(
            f"nothing is promised to {' or '.join(names)}, so nothing can be weighed: say "
            "--goodput, or targets of classes in the workload file"
        )
    known = {each.name for each in config.classes}
    for name in names:
        if name not in known:
            raise ValueError(
                f"class {name} of the workload is not configured, and would be refused: add "
                f"[classes.{name}] to the settings file"
            )


def class_names(workloads: Iterable[Workload]) -> list[str]:
    """Return the classes that come with any of the seeds, each once."""
    return list(dict.fromkeys(a.class_name for each in workloads for a in each.arrivals))
