"""A real engine under a workload, in real time, by the loop of the simulator: no HTTP, no text.

What a simulation of it is held against.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from random import Random

from headway.core.config import SchedulerConfig
from headway.core.events import Event
from headway.core.plan import RequestId
from headway.core.ports import Executor
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import Clock
from headway.engine.loop import Engine
from headway.sim.naming import number_of, request_id_of
from headway.sim.recorder import Recorder
from headway.sim.records import RequestRecord
from headway.sim.speed import MachineSpeed, Timetable
from headway.sim.step_recorder import StepRecorder
from headway.workload import Arrival

Steps = Generator[float, None, None]

_LEAST_WAIT_S = 1e-6
"""A difference of two moments may be rounded to nothing, and a wait for it would never end."""


class LiveEngine:
    """A real executor behind the scheduler, driven in one thread.

    Attributes:
        step_log: what each step took, from the beginning on.
        clock: real time, or a virtual one if the executor is simulated.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        executor: Executor,
        clock: Clock,
        *,
        vocab_size: int,
        seed: int = 0,
        prompt_of: Callable[[int, Arrival], Sequence[int]] | None = None,
    ) -> None:
        """Make an engine.

        Prompts are drawn from ``vocab_size`` tokens, and share nothing, unless ``prompt_of`` makes
        that of an arrival from its place in the workload.
        """
        self.clock = clock
        self.step_log = StepRecorder(executor, clock.now)
        self._watch = _Watch()
        self._engine = Engine(Scheduler(config), self.step_log, clock, observers=(self._watch,))
        self._vocab_size = vocab_size
        self._seed = seed
        self._prompt_of = prompt_of or self._drawn
        self._num_requests = 0

    def run(
        self, arrivals: Sequence[Arrival], stop: Callable[[], bool] = lambda: False
    ) -> list[RequestRecord]:
        """Serve arrivals at their times, from now on, until all have ended.

        ``stop``, asked after each step, ends it before; what runs then is cancelled. Moments of the
        records are seconds from the begin.
        """
        records, steps = self.begin(arrivals)
        with closing(steps):
            for _ in steps:
                if stop():
                    break
        return records

    def begin(
        self, arrivals: Sequence[Arrival], speed: MachineSpeed | None = None
    ) -> tuple[list[RequestRecord], Steps]:
        """Return the records of a run that is to begin, and the run, which fills them.

        It yields the seconds of each step that was computed. Whoever closes it cancels what runs.
        With the speed of the machine, arrivals come as fast as that allows: those of the records
        have the moments at which they came.
        """
        first = self._num_requests
        self._num_requests += len(arrivals)
        records: list[RequestRecord] = []
        return records, self._steps(list(arrivals), first, records, speed or MachineSpeed())

    def _steps(
        self,
        arrivals: list[Arrival],
        first: int,
        records: list[RequestRecord],
        speed: MachineSpeed,
    ) -> Steps:
        requests = [self._request(first + n, each) for n, each in enumerate(arrivals)]
        recorder = self._watch.begin(arrivals, first, self.clock.now())
        try:
            yield from self._serve(arrivals, requests, speed)
        finally:
            self.step_log.idle()
            for request in requests:
                self._engine.cancel(request.request_id, "stopped")
            records += recorder.records

    def _serve(
        self, arrivals: list[Arrival], requests: Sequence[Request], speed: MachineSpeed
    ) -> Steps:
        timetable = Timetable(self._watch.began_s, speed)
        num_submitted = 0
        while True:
            timetable.look(self.clock.now())
            while num_submitted < len(arrivals):
                due_s = timetable.moment_of(arrivals[num_submitted].at_s)
                if due_s > self.clock.now():
                    break
                timetable.pass_by(due_s)
                # before it is submitted: then its record takes its arrival from this list
                arrivals[num_submitted] = self._watch.placed(arrivals[num_submitted], due_s)
                self._engine.submit(requests[num_submitted])
                num_submitted += 1
            else:
                due_s = inf
            outcome = self._engine.step()
            if outcome.error is not None:
                raise outcome.error
            if not outcome.is_idle:
                yield self.step_log.last_s
                continue
            self.step_log.idle()
            wake_s = inf if outcome.wake_at is None else outcome.wake_at
            wake_s = min(due_s, wake_s)
            if wake_s == inf:
                return
            self.clock.sleep(max(wake_s - self.clock.now(), _LEAST_WAIT_S))

    def _request(self, number: int, arrival: Arrival) -> Request:
        """Return a request whose answer has exactly its length.

        It takes the best token each time: after tokens without sense all are about as likely, and a
        draw from them would take far longer than one in a text.
        """
        return Request(
            request_id=request_id_of(number),
            prompt_token_ids=tuple(self._prompt_of(number, arrival)),
            sampling=SamplingParams(max_tokens=arrival.output_tokens, temperature=0.0),
            class_name=arrival.class_name,
            tenant=arrival.tenant,
            priority=arrival.priority,
        )

    def _drawn(self, number: int, arrival: Arrival) -> Sequence[int]:
        draw = Random(f"{self._seed}/{number}").randrange
        return [draw(self._vocab_size) for _ in range(arrival.prompt_tokens)]


class _Watch:
    """Observes the engine for the run that is on, in seconds from its begin."""

    def __init__(self) -> None:
        self.began_s = 0.0
        self._recorder = Recorder(_nobody)

    def begin(self, arrivals: Sequence[Arrival], first: int, began_s: float) -> Recorder:
        """Begin a run whose requests are numbered from ``first`` on."""

        def blank(request_id: RequestId) -> RequestRecord:
            number = number_of(request_id) - first
            return RequestRecord(arrivals[number], number=number)

        self.began_s = began_s
        self._recorder = Recorder(blank)
        return self._recorder

    def placed(self, arrival: Arrival, moment: float) -> Arrival:
        """Return the arrival as it came, at a moment of the clock."""
        if moment == self.began_s + arrival.at_s:
            return arrival
        return replace(arrival, at_s=moment - self.began_s)

    def on_submitted(self, request: Request, now: float) -> None:
        self._recorder.on_submitted(request, now - self.began_s)

    def on_events(self, events: Sequence[Event], now: float) -> None:
        self._recorder.on_events(events, now - self.began_s)

    def on_step(self, num_sequences: int, num_tokens: int, elapsed_s: float) -> None:
        self._recorder.on_step(num_sequences, num_tokens, elapsed_s)


def _nobody(request_id: RequestId) -> RequestRecord:
    raise AssertionError(f"{request_id} came before the first run")
