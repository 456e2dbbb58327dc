"""When steps begin and end in virtual time: one after the other, or planned while another runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from headway.core.plan import StepPlan, StepResult
from headway.core.ports import Executor
from headway.engine.clock import VirtualClock
from headway.engine.loop import Engine, StepOutcome
from headway.profiles.shape import StepShape

HostTime = Callable[[StepShape], float]
"""Seconds that the host works on a step before the device can begin it."""


class Pace(Protocol):
    """Turns the engine's loop, and spends the time that the executor asks for."""

    def next_start(self) -> float:
        """Return when the device begins what it is given now."""
        ...

    def prepare(self, seconds: float) -> None:
        """Have the host work on the next step."""
        ...

    def sleep(self, seconds: float) -> None:
        """Have the device compute the next step."""
        ...

    def advance(self, engine: Engine) -> StepOutcome:
        """Go on until a plan or a result is there; idle if there is nothing to do."""
        ...


class OneAtATime:
    """A step is planned when the result of the one before is there."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def next_start(self) -> float:
        """Return the present."""
        return self._clock.now()

    def prepare(self, seconds: float) -> None:
        """Let the time pass: the device waits."""
        self._clock.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self._clock.sleep(seconds)

    def advance(self, engine: Engine) -> StepOutcome:
        """Plan, compute and apply a step."""
        return engine.step()


class Overlapped:
    """While a step runs the next one is planned, so its host time is hidden unless it is longer.

    As engines with asynchronous scheduling do: what arrives while step n runs is planned into step
    n + 2, and a slot or block that step n frees is taken by n + 2 as well.
    """

    def __init__(self, clock: VirtualClock, max_plans_in_flight: int) -> None:
        self._clock = clock
        self._most = max_plans_in_flight
        self._ends: deque[float] = deque()  # of the steps in flight
        self._free_at = 0.0
        self._ready_at = 0.0

    def next_start(self) -> float:
        """Return when the device is free and the host is ready."""
        return max(self._free_at, self._ready_at, self._clock.now())

    def prepare(self, seconds: float) -> None:
        """Have the host work from now on, while the device does."""
        self._ready_at = self._clock.now() + seconds

    def sleep(self, seconds: float) -> None:
        """Book the device's time; the clock follows when the result is waited for."""
        self._free_at = self.next_start() + seconds

    def advance(self, engine: Engine) -> StepOutcome:
        """Begin a step if one more may be in flight; if not, or there is none, end the oldest."""
        if len(self._ends) < self._most:
            outcome = engine.begin()
            if not outcome.is_idle:
                self._ends.append(self._free_at)
            if not outcome.is_idle or not self._ends:
                return outcome
        self._clock.sleep_until(self._ends.popleft())
        return engine.finish()


class HostedExecutor:
    """Spends host time on a plan before another executor runs it."""

    def __init__(self, inner: Executor, host: HostTime, pace: Pace) -> None:
        self._inner = inner
        self._host = host
        self._pace = pace

    def run(self, plan: StepPlan) -> StepResult:
        """Prepare the step, then run it."""
        self._pace.prepare(self._host(StepShape.of_plan(plan)))
        return self._inner.run(plan)
