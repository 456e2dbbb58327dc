"""One loop for serving and simulation: schedule, run, apply.

Single-threaded: whoever owns an :class:`Engine` calls it from one thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.events import Admitted, Event, Rejected
from headway.core.plan import Idle, RequestId, StepPlan, StepResult
from headway.core.ports import Executor
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine.clock import Clock
from headway.engine.journal import Journal

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Sees everything that the engine does, in order; the metrics are one."""

    def on_submitted(self, request: Request, now: float) -> None:
        """A request arrived; Admitted or Rejected follows."""
        ...

    def on_events(self, events: Sequence[Event], now: float) -> None:
        """The scheduler said something."""
        ...

    def on_step(self, num_sequences: int, num_tokens: int, elapsed_s: float) -> None:
        """A step was computed."""
        ...


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one turn of the loop did.

    Attributes:
        events: in the order in which they happened.
        is_idle: nothing was computed; work or ``wake_at`` must come first.
        wake_at: when a deadline wants another turn.
        error: the whole step failed with this exception; its requests were failed.
    """

    events: tuple[Event, ...]
    is_idle: bool = False
    wake_at: float | None = None
    error: Exception | None = None


_SILENT = StepOutcome(())  # shared, since most steps begin without an event

_Computed = tuple[StepPlan, StepResult, Exception | None]


class Engine:
    """A scheduler, an executor and a clock, with a journal and observers of what they do."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock,
        *,
        journal: Journal | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.clock = clock
        self._journal = journal
        self._observers = tuple(observers)
        self._computed: deque[_Computed] = deque()

    def submit(self, request: Request) -> Admitted | Rejected:
        """Hand a request to the scheduler."""
        now = self.clock.now()
        if self._journal:
            self._journal.submitted(request, now)
        for observer in self._observers:
            observer.on_submitted(request, now)
        answer = self.scheduler.submit(request, now)
        self._observe((answer,), now)
        return answer

    def cancel(self, request_id: RequestId, reason: str) -> tuple[Event, ...]:
        """Cancel a request; its blocks are free when this returns."""
        now = self.clock.now()
        if self._journal:
            self._journal.cancelled(request_id, now, reason)
        return self._observe(self.scheduler.cancel(request_id, now, reason), now)

    def stop(self, request_id: RequestId, index: int) -> tuple[Event, ...]:
        """End a sequence in which a stop string was found."""
        now = self.clock.now()
        if self._journal:
            self._journal.stopped(request_id, index, now)
        return self._observe(self.scheduler.stop(request_id, index, now), now)

    def step(self) -> StepOutcome:
        """Plan, compute and apply one step.

        Load and bad requests raise nothing. If the executor raises, the requests of that step
        fail, everybody else goes on, and the outcome carries the error.
        """
        begun = self.begin()
        if begun.is_idle:
            return begun
        finished = self.finish()
        if not begun.events:
            return finished
        return StepOutcome(begun.events + finished.events, error=finished.error)

    def begin(self) -> StepOutcome:
        """Plan and compute a step; :meth:`finish` takes its result in.

        With two plans in flight the next step is planned before that.
        """
        now = self.clock.now()
        plan = self.scheduler.schedule(now)
        if self._journal:
            self._journal.scheduled(plan, now)
        events = self._observe(plan.events, now)
        if isinstance(plan, Idle):
            if self._journal:
                self._journal.flush()
            return StepOutcome(events, is_idle=True, wake_at=plan.until)
        self._computed.append((plan, *self._run(plan)))
        return StepOutcome(events) if events else _SILENT

    def finish(self) -> StepOutcome:
        """Apply the result of the oldest step that was begun."""
        plan, result, error = self._computed.popleft()
        now = self.clock.now()
        if self._journal:
            self._journal.applied(result, now)
        events = self._observe(self.scheduler.apply(result, now), now)
        num_tokens = sum([part.count for part in plan.slices])
        for observer in self._observers:
            observer.on_step(len(plan.slices), num_tokens, result.elapsed_s)
        return StepOutcome(events, error=error)

    def close(self) -> None:
        """Close the journal."""
        if self._journal:
            self._journal.close()

    def _run(self, plan: StepPlan) -> tuple[StepResult, Exception | None]:
        try:
            return self.executor.run(plan), None
        except Exception as error:  # noqa: BLE001 - whatever an executor raises, the loop goes on
            _log.exception("step %d failed", plan.step_id)
            message = f"step {plan.step_id} failed: {type(error).__name__}: {error}"
            failures = {part.sequence_id: message for part in plan.slices}
            return StepResult(plan.step_id, {}, failures, is_lost=True), error

    def _observe(self, events: tuple[Event, ...], now: float) -> tuple[Event, ...]:
        if events:
            for observer in self._observers:
                observer.on_events(events, now)
        return events
