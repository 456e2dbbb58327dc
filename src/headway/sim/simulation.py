"""The driver: open-loop arrivals into the engine, which runs on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

from headway.core.config import SchedulerConfig
from headway.core.plan import NewSequence
from headway.core.ports import Executor
from headway.core.predict import OutputLengthPredictor
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal
from headway.engine.loop import Engine
from headway.errors import InvariantError
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.shape import StepCost
from headway.sim.naming import number_of
from headway.sim.pace import HostedExecutor, HostTime, OneAtATime, Overlapped, Pace
from headway.sim.recorder import Recorder, RecordingExecutor
from headway.sim.records import RequestRecord, Sample, SimulationResult
from headway.sim.requests import VOCAB_SIZE, request_of
from headway.workload import Arrival

Watch = Callable[[Scheduler, float], None]
"""Sees the scheduler after each step, and the time."""

MakeRequest = Callable[[int, Arrival, int], Request]
"""Makes the request of the arrival at a place of the workload, for a context of so many tokens."""

#: idle turns at one moment, after which nothing will ever move again
_PATIENCE = 3


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
        watch: called after each step.
        journal: written as when serving; not with a ``predictor``.

    Raises:
        ValueError: the arrivals are not in order of time; or a journal and a predictor are given,
            since a replay would predict otherwise.
        InvariantError: nothing moves any more, or a step failed: our bug.
    """
    run = _Run(config, arrivals, cost, predictor, host, make_request, sample_every_s, journal)
    while run.now < until_s and run.turn(until_s):
        if watch is not None:
            watch(run.engine.scheduler, run.now)
    return run.result()


class _Run:
    """One simulation: the engine, and the arrivals still to come."""

    def __init__(
        self,
        config: SchedulerConfig,
        arrivals: Sequence[Arrival],
        cost: StepCost,
        predictor: OutputLengthPredictor | None,
        host: HostTime | None,
        make_request: MakeRequest,
        sample_every_s: float,
        journal: Journal | None,
    ) -> None:
        if journal is not None and predictor is not None:
            raise ValueError(
                "a journal of a run with a predictor of its own can't be replayed: leave out one"
            )
        if any(one.at_s > other.at_s for one, other in pairwise(arrivals)):
            raise ValueError("the arrivals are not in order of time")
        self._arrivals = arrivals
        self._make_request = make_request
        self._num_submitted = 0
        self._max_model_len = config.limits.max_model_len
        self._clock = VirtualClock()
        self._recorder = Recorder(lambda request_id: self._blank(number_of(request_id)))
        self._samples: list[Sample] = []
        self._sample_every_s = sample_every_s
        self._num_idle = 0
        most = config.limits.max_plans_in_flight
        clock = self._clock
        self._pace: Pace = OneAtATime(clock) if most == 1 else Overlapped(clock, most)
        self.engine = Engine(
            Scheduler(config, predictor),
            self._executor(config, cost, host),
            clock,
            journal=journal,
            observers=(self._recorder,),
        )

    @property
    def now(self) -> float:
        """Seconds of virtual time."""
        return self._clock.now()

    def turn(self, until_s: float) -> bool:
        """Take in what has come and run one step, or wait; return whether there is more to do."""
        self._submit()
        self._sample()
        outcome = self._pace.advance(self.engine)
        if outcome.error is not None:
            raise InvariantError(f"a step failed: {outcome.error}") from outcome.error
        if not outcome.is_idle:
            self._num_idle = 0
            return True
        wake_at = min(self._next_arrival_at(), outcome.wake_at if outcome.wake_at else inf)
        if wake_at == inf:
            self._require_the_end()
            return False
        self._wait(min(wake_at, until_s))
        return True

    def result(self) -> SimulationResult:
        """Return what was recorded."""
        self._sample()
        return SimulationResult(
            requests=tuple(self._recorder.records),
            steps=self._recorder.steps,
            samples=tuple(self._samples),
            end_s=self.now,
            statistics=self.engine.scheduler.statistics(),
        )

    def _submit(self) -> None:
        while self._next_arrival_at() <= self.now:
            number = self._num_submitted
            self._num_submitted += 1
            arrival = self._arrivals[number]
            self.engine.submit(self._make_request(number, arrival, self._max_model_len))

    def _sample(self) -> None:
        """Take a sample if one is due; steps can be longer than the distance of samples."""
        if self.now < len(self._samples) * self._sample_every_s:
            return
        seen = self.engine.scheduler.statistics()
        served = self._recorder.served()
        while len(self._samples) * self._sample_every_s <= self.now:
            self._samples.append(
                Sample(
                    at_s=len(self._samples) * self._sample_every_s,
                    num_waiting=seen.num_waiting_sequences + seen.num_preempted,
                    num_running=seen.num_running,
                    num_free_blocks=seen.num_free_blocks,
                    served=served,
                )
            )

    def _wait(self, moment: float) -> None:
        self._num_idle = self._num_idle + 1 if moment <= self.now else 0
        if self._num_idle > _PATIENCE:
            raise InvariantError(f"the scheduler idles at {self.now} s, though it said when to ask")
        self._clock.sleep_until(moment)

    def _require_the_end(self) -> None:
        num_live = self.engine.scheduler.statistics().num_live
        if num_live:
            raise InvariantError(f"{num_live} requests are stuck at {self.now} s")

    def _next_arrival_at(self) -> float:
        number = self._num_submitted
        return self._arrivals[number].at_s if number < len(self._arrivals) else inf

    def _blank(self, number: int) -> RequestRecord:
        return RequestRecord(self._arrivals[number])

    def _executor(self, config: SchedulerConfig, cost: StepCost, host: HostTime | None) -> Executor:
        def output_length(new: NewSequence) -> int:
            return self._arrivals[number_of(new.request_id)].output_tokens

        simulated = SimulatedExecutor(
            cost,
            self._pace,
            num_blocks=config.limits.num_blocks,
            block_size=config.limits.block_size,
            num_swap_blocks=config.limits.num_swap_blocks,
            vocab_size=VOCAB_SIZE,
            output_length=output_length,
        )
        recording = RecordingExecutor(simulated, self._recorder, self._pace.next_start)
        return HostedExecutor(recording, host, self._pace) if host else recording
