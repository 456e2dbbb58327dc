"""What a fleet makes of a window of a workload, and how much an instance can do at full load."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from math import inf

from headway.planning.fleets import attained, p99_tpot_s, p99_ttft_s
from headway.planning.trade_windows import Window
from headway.report import figures
from headway.sim.as_report import records_of
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.records import StepSeries
from headway.sim.replica import Machine
from headway.sim.routers import LeastLoaded
from headway.workload import Arrival, Workload

#: full batches that are served to see what an instance can do; the first isn't counted, since all
#: of its requests begin at once
_NUM_BATCHES = 4
#: requests at least, or a mix of lengths would be seen in part
_FEWEST = 128


@dataclass(frozen=True, slots=True)
class Measured:
    """What came in a window, or became of the requests that came in it. Times in seconds.

    Attributes:
        output_throughput: output tokens a second, whoever they are of.
        p99_ttft_s: of requests that were completed; infinite if there was none.
        p99_tpot_s: likewise, of answers with a second token.
        attained: share of the requests that kept their targets; 1 if none came.
        mean_batch: sequences in a step, on average over the time that was computed.
        busy_share: share of the instances' time in which they computed.
    """

    output_throughput: float
    p99_ttft_s: float
    p99_tpot_s: float
    attained: float
    mean_batch: float
    busy_share: float


def measure(machines: Sequence[Machine], workload: Workload, window: Window) -> Measured:
    """Serve a workload, each request by the instance with the fewest; report on a window of it."""
    result = simulate_fleet(machines, LeastLoaded(range(len(machines))), workload)
    inside = [r for r in result.requests if window.begin_s <= r.arrival.at_s < window.end_s]
    found = figures(records_of(inside), window.length_s, workload.targets)
    busy_s, sequence_s = _busy(result, window)
    return Measured(
        output_throughput=_num_tokens(result, window.begin_s, window.end_s) / window.length_s,
        p99_ttft_s=p99_ttft_s(found),
        p99_tpot_s=p99_tpot_s(found),
        attained=attained(found),
        mean_batch=sequence_s / busy_s if busy_s else 0.0,
        busy_share=busy_s / (window.length_s * len(machines)),
    )


def _num_tokens(result: FleetResult, begin_s: float, end_s: float) -> int:
    """Return the output tokens that came from one moment on, before another."""
    return sum(
        bisect_left(each.token_times, end_s) - bisect_left(each.token_times, begin_s)
        for each in result.requests
    )


def _busy(result: FleetResult, window: Window) -> tuple[float, float]:
    """Return the seconds of steps that lie in the window, and these times their sequences."""
    each = [_busy_of(replica.steps, window) for replica in result.replicas]
    return sum(busy_s for busy_s, _ in each), sum(sequence_s for _, sequence_s in each)


def _busy_of(steps: StepSeries, window: Window) -> tuple[float, float]:
    busy_s = sequence_s = 0.0
    columns = zip(steps.began_at, steps.elapsed_s, steps.num_sequences, strict=True)
    for began_s, elapsed_s, count in columns:
        inside_s = min(began_s + elapsed_s, window.end_s) - max(began_s, window.begin_s)
        if inside_s > 0:
            busy_s += inside_s
            sequence_s += inside_s * count
    return busy_s, sequence_s


def full_throughput(machine: Machine, arrivals: Sequence[Arrival], workload: Workload) -> float:
    """Return the output tokens a second of an instance for which such requests always queue.

    They are all there from the start, over and over. Counted is from the moment at which the
    second batch begins until the last request does, so that the queue is never empty.
    """
    limit = machine.config.limits.max_num_seqs
    number = max(_NUM_BATCHES * limit, _FEWEST)
    at_once = [replace(each, at_s=0.0, conduct=None) for each in islice(cycle(arrivals), number)]
    queued = replace(workload, arrivals=at_once, duration_s=inf)
    result = simulate_fleet([_patient(machine)], LeastLoaded([0]), queued)
    started = sorted(r.started_at for r in result.requests if r.started_at is not None)
    if len(started) <= limit or started[limit] == started[-1]:
        return _num_tokens(result, 0.0, inf) / result.end_s if result.end_s else 0.0
    begin_s, end_s = started[limit], started[-1]
    return _num_tokens(result, begin_s, end_s) / (end_s - begin_s)


def _patient(machine: Machine) -> Machine:
    """Return the machine with room for any queue, in which nobody's time is over."""
    config = machine.config
    limits = replace(config.limits, max_queue_requests=None, max_queue_tokens=None)
    classes = tuple(
        replace(
            each,
            max_queue_requests=None,
            max_queue_tokens=None,
            queue_timeout_s=None,
            request_timeout_s=None,
        )
        for each in config.classes
    )
    return replace(machine, config=replace(config, limits=limits, classes=classes))
