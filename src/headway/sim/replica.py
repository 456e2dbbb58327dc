"""One engine in virtual time: the scheduler that serves, a cost model, and what is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from headway.core.config import SchedulerConfig
from headway.core.plan import NewSequence, RequestId
from headway.core.predict import OutputLengthPredictor
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal
from headway.engine.loop import Engine
from headway.errors import InvariantError
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.shape import StepCost
from headway.sim.ahead import Ahead
from headway.sim.naming import number_of
from headway.sim.pace import HostedExecutor, HostTime, OneAtATime, Overlapped, Pace
from headway.sim.recorder import Recorder, RecordingExecutor
from headway.sim.records import RequestRecord, Sample, SimulationResult
from headway.sim.requests import VOCAB_SIZE
from headway.workload import Arrival

ArrivalOf = Callable[[int], Arrival]
"""Returns the arrival at a place of the workload."""

#: idle turns at one moment, after which nothing will ever move again
_PATIENCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a replica is made of.

    Attributes:
        config: of its scheduler.
        cost: how long each step takes.
        host: how long the host works on a step before the device can begin it; None is no time.
        predictor: makes a predictor of output lengths, in place of the one that ``config`` names.
        leaps: take steps that only repeat each other at once: faster, to the same result.
        sample_every_s: distance of the samples of its state, in seconds.
    """

    config: SchedulerConfig
    cost: StepCost
    host: HostTime | None = None
    predictor: OutputLengthPredictor | None = None
    leaps: bool = True
    sample_every_s: float = 1.0


class Replica:
    """An engine on a clock of its own, which is moved by its turns alone.

    Attributes:
        engine: scheduler and simulated executor.
        recorder: what became of its requests.
    """

    def __init__(
        self, machine: Machine, arrival_of: ArrivalOf, journal: Journal | None = None
    ) -> None:
        config, host = machine.config, machine.host
        self._machine = machine
        self._arrival_of = arrival_of
        self._clock = clock = VirtualClock()
        self._samples: list[Sample] = []
        self._num_idle = 0
        self.recorder = Recorder(self._blank)
        most = config.limits.max_plans_in_flight
        self._pace: Pace = OneAtATime(clock) if most == 1 else Overlapped(clock, most)
        simulated = self._simulated()
        recording = RecordingExecutor(simulated, self.recorder, self._pace.next_start)
        self.engine = Engine(
            Scheduler(config, machine.predictor),
            HostedExecutor(recording, host, self._pace) if host else recording,
            clock,
            journal=journal,
            observers=(self.recorder,),
        )
        self._may_leap = machine.leaps
        self._ahead = Ahead(
            self.engine.scheduler, simulated, machine.cost, host, clock, recording, journal
        )

    @property
    def now(self) -> float:
        """Seconds of virtual time."""
        return self._clock.now()

    def submit(self, request: Request) -> None:
        """Hand a request to the engine."""
        if request.n > 1 and self._may_leap:  # or tokens of one request came out of order
            self._may_leap = False
            self.settle()
        self.engine.submit(request)

    def cancel(self, request_id: RequestId) -> None:
        """Cancel a request, as when its client goes away."""
        self.settle()
        self.engine.cancel(request_id, "client_left")

    def settle(self) -> None:
        """Bring the records up to date with the steps that were taken."""
        self._ahead.settle()

    def turn(self, before_s: float) -> float:
        """Run a step, or several that begin before a moment and only repeat each other.

        Returns when to come again: now, or at the end of a wait; infinite is "when work comes".
        """
        self._sample()
        next_sample = len(self._samples) * self._machine.sample_every_s
        outcome = self._ahead.advance(min(before_s, next_sample)) if self._may_leap else None
        if outcome is None:
            outcome = self._pace.advance(self.engine)
        if outcome.error is not None:
            raise InvariantError(f"a step failed: {outcome.error}") from outcome.error
        if not outcome.is_idle:
            self._num_idle = 0
            return self.now
        wake_at = outcome.wake_at if outcome.wake_at is not None else inf
        self._num_idle = self._num_idle + 1 if wake_at <= self.now else 0
        if self._num_idle > _PATIENCE:
            raise InvariantError(f"the scheduler idles at {self.now} s, though it said when to ask")
        return wake_at

    def wait(self, moment: float) -> None:
        """Let the time pass until then."""
        self._clock.sleep_until(moment)

    def require_the_end(self) -> None:
        """Check that nobody is left.

        Raises:
            InvariantError: somebody is, though nothing will move any more.
        """
        num_live = self.engine.scheduler.statistics().num_live
        if num_live:
            raise InvariantError(f"{num_live} requests are stuck at {self.now} s")

    def result(self) -> SimulationResult:
        """Return what was recorded."""
        self.settle()
        self._sample()
        return SimulationResult(
            requests=tuple(self.recorder.records),
            steps=self.recorder.steps,
            samples=tuple(self._samples),
            end_s=self.now,
            statistics=self.engine.scheduler.statistics(),
        )

    def _sample(self) -> None:
        """Take a sample if one is due; steps can be longer than the distance of samples."""
        every_s = self._machine.sample_every_s
        if self.now < len(self._samples) * every_s:
            return
        self.settle()
        seen = self.engine.scheduler.statistics()
        served = self.recorder.served()
        while len(self._samples) * every_s <= self.now:
            self._samples.append(
                Sample(
                    at_s=len(self._samples) * every_s,
                    num_waiting=seen.num_waiting_sequences + seen.num_preempted,
                    num_running=seen.num_running,
                    num_free_blocks=seen.num_free_blocks,
                    served=served,
                )
            )

    def _blank(self, request_id: RequestId) -> RequestRecord:
        number = number_of(request_id)
        return RequestRecord(self._arrival_of(number), number=number)

    def _simulated(self) -> SimulatedExecutor:
        def arrival_of(new: NewSequence) -> Arrival:
            return self._arrival_of(number_of(new.request_id))

        limits = self._machine.config.limits
        return SimulatedExecutor(
            self._machine.cost,
            self._pace,
            num_blocks=limits.num_blocks,
            block_size=limits.block_size,
            num_swap_blocks=limits.num_swap_blocks,
            vocab_size=VOCAB_SIZE,
            output_length=lambda new: arrival_of(new).output_tokens,
        )
