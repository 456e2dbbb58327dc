"""One engine on a virtual clock, with open-loop arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

from headway.core.config import SchedulerConfig
from headway.core.predict import OutputLengthPredictor
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine.journal import Journal
from headway.profiles.shape import StepCost
from headway.sim.pace import HostTime
from headway.sim.records import SimulationResult
from headway.sim.replica import Machine, Replica
from headway.sim.requests import request_of
from headway.workload import Arrival

Watch = Callable[[Scheduler, float], None]
"""Sees the scheduler after each step, and the time."""

MakeRequest = Callable[[int, Arrival, int], Request]
"""Makes the request of the arrival at a place of the workload, for a context of so many tokens."""


def simulate(
    config: SchedulerConfig,
    arrivals: Sequence[Arrival],
    cost: StepCost,
    *,
    predictor: OutputLengthPredictor | None = None,
    host: HostTime | None = None,
    make_request: MakeRequest = request_of,
    until_s: float = inf,
    sample_every_s: float = 1.0,
    watch: Watch | None = None,
    journal: Journal | None = None,
    leaps: bool = True,
) -> SimulationResult:
    """Serve a workload in virtual time. The same arguments give the same result.

    With ``max_plans_in_flight`` 2 each step is planned while the one before it runs.

    Args:
        config: of the scheduler.
        arrivals: in order of time. They don't wait for each other (open loop).
        cost: how long each step takes.
        predictor: of output lengths, in place of the one that ``config`` names.
        host: how long the host works on a step before the device can begin it; None is no time.
        make_request: makes the request of an arrival; ids must be those of ``request_id_of``.
        until_s: when to stop, if not when all requests have ended.
        sample_every_s: distance of ``result.samples``, in seconds.
        watch: called after each step, which are then taken one by one.
        journal: written as when serving; not with a ``predictor``.
        leaps: take steps that only repeat each other at once: faster, to the same result.

    Raises:
        ValueError: the arrivals are not in order of time; or a journal and a predictor are given,
            since a replay would predict otherwise.
        InvariantError: nothing moves any more, or a step failed: our bug.
    """
    if journal is not None and predictor is not None:
        raise ValueError(
            "a journal of a run with a predictor of its own can't be replayed: leave out one"
        )
    if any(one.at_s > other.at_s for one, other in pairwise(arrivals)):
        raise ValueError("the arrivals are not in order of time")
    machine = Machine(
        config=config,
        cost=cost,
        host=host,
        predictor=predictor,
        leaps=leaps and watch is None,
        sample_every_s=sample_every_s,
    )
    replica = Replica(machine, arrivals.__getitem__, journal)
    _serve(replica, arrivals, make_request, config.limits.max_model_len, until_s, watch)
    return replica.result()


def _serve(
    replica: Replica,
    arrivals: Sequence[Arrival],
    make_request: MakeRequest,
    max_model_len: int,
    until_s: float,
    watch: Watch | None,
) -> None:
    """Take in what has come and run a step, or wait, until nobody is left."""
    upcoming = enumerate(arrivals)
    number, arrival = next(upcoming, (0, None))
    while replica.now < until_s:
        while arrival is not None and arrival.at_s <= replica.now:
            replica.submit(make_request(number, arrival, max_model_len))
            number, arrival = next(upcoming, (0, None))
        next_at = inf if arrival is None else arrival.at_s
        again_at = replica.turn(min(next_at, until_s))
        if again_at > replica.now:
            again_at = min(again_at, next_at)
            if again_at == inf:
                replica.require_the_end()
                return
            replica.wait(min(again_at, until_s))
        if watch is not None:
            watch(replica.engine.scheduler, replica.now)
