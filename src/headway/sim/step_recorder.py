"""The step log of a real engine: what each step computed, and how long device and host took."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.plan import StepPlan, StepResult
from headway.core.ports import Executor
from headway.profiles.features import ObservedStep
from headway.profiles.shape import StepShape


class StepRecorder:
    """Runs plans by another executor and measures them, one plan in flight.

    The host's time of a step is from the end of the step before it to its own begin, unless the
    engine was idle in between.

    Attributes:
        steps: what was measured, in order.
        last_s: what the last step took, however it ended.
    """

    def __init__(self, inner: Executor, now: Callable[[], float]) -> None:
        self._inner = inner
        self._now = now
        self._free_since: float | None = None
        self.steps: list[ObservedStep] = []
        self.last_s = 0.0

    def run(self, plan: StepPlan) -> StepResult:
        """Run the plan and note how long it took."""
        began = self._now()
        result = self._inner.run(plan)
        ended = self._now()
        self.last_s = ended - began
        if not result.failures:
            host_s = 0.0 if self._free_since is None else began - self._free_since
            self.steps.append(ObservedStep(StepShape.of_plan(plan), self.last_s, host_s))
        self._free_since = ended
        return result

    def idle(self) -> None:
        """Note that the engine waits: the time until the next step isn't the host's."""
        self._free_since = None
