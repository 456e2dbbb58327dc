"""What each way of forming batches makes of a workload: simulated, at its load and at full load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

from headway.core.limits import Batching, SchedulerLimits
from headway.report import Figures, figures
from headway.sim.as_report import records_of
from headway.sim.fleet import simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import RoundRobin
from headway.workload import Workload

#: times the longest service between two requests that are to be alone, slow stretches included
_APART = 4
MODES = ("none", *(each.value for each in Batching))


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode. Times in seconds; infinite if no request was completed.

    Attributes:
        full_throughput: output tokens a second if all requests were there from the start.
        mean_e2el_s: from arrival to end, at the load of the workload.
        p99_e2el_s: the same.
        p99_ttft_s: likewise, to the first token.
        worst_gap_s: the longest time between two tokens of a request.
        attained: share of requests that kept what was promised; None if nothing was.
    """

    full_throughput: float
    mean_e2el_s: float
    p99_e2el_s: float
    p99_ttft_s: float
    worst_gap_s: float
    attained: float | None


def compare_modes(make: Callable[[], Machine], workload: Workload) -> Mapping[str, ModeResult]:
    """Simulate all modes on one replica, whose other limits stay as they are.

    Args:
        make: makes the replica anew, since slow stretches go on from one simulation to the next.
        workload: requests in open loop.

    Raises:
        ValueError: the settings don't go with a mode; the message says which.
    """
    return {mode: _result(make, mode, workload) for mode in MODES}


def _in_mode(machine: Machine, mode: str) -> Machine:
    limits = _limits(machine.config.limits, mode)
    return replace(machine, config=replace(machine.config, limits=limits))


def _limits(limits: SchedulerLimits, mode: str) -> SchedulerLimits:
    if mode == "none":
        return replace(limits, batching=Batching.CONTINUOUS, max_num_seqs=1, max_waiting_time_s=0.0)
    return replace(limits, batching=Batching(mode))


def attained_alone(machine: Machine, workload: Workload, longest_s: float) -> float | None:
    """Return the share of requests that keep their promises if each has the machine alone.

    None if nothing was promised. ``longest_s`` is the longest service, without slow stretches.
    """
    limits = replace(machine.config.limits, batching=Batching.CONTINUOUS, max_waiting_time_s=0.0)
    ready = replace(machine, config=replace(machine.config, limits=limits))
    apart_s = _APART * longest_s
    spaced = [replace(each, at_s=n * apart_s) for n, each in enumerate(workload.arrivals)]
    alone = replace(workload, arrivals=spaced, duration_s=inf)
    return _attained(_figures(ready, alone), alone)


def _result(make: Callable[[], Machine], mode: str, workload: Workload) -> ModeResult:
    at_once = [replace(each, at_s=0.0) for each in workload.arrivals]
    full = _figures(_in_mode(make(), mode), replace(workload, arrivals=at_once))
    loaded = _figures(_in_mode(make(), mode), workload)
    total, first, gaps = loaded.latencies.e2el, loaded.latencies.ttft, loaded.latencies.itl
    return ModeResult(
        full_throughput=full.a_second(full.output_tokens),
        mean_e2el_s=total.mean if total else inf,
        p99_e2el_s=total.p99 if total else inf,
        p99_ttft_s=first.p99 if first else inf,
        worst_gap_s=gaps.most if gaps else 0.0,
        attained=_attained(loaded, workload),
    )


def _attained(found: Figures, workload: Workload) -> float | None:
    return found.attained if workload.targets else None


def _figures(machine: Machine, workload: Workload) -> Figures:
    result = simulate_fleet([machine], RoundRobin(1), workload)
    return figures(records_of(result.requests), result.end_s, workload.targets)
