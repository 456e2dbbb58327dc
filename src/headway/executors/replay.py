"""An executor that answers from recorded results, and refuses a plan that was not recorded."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.plan import StepPlan, StepResult


class ReplayExecutor:
    """Implements :class:`headway.core.ports.Executor` on the results of an earlier run."""

    def __init__(self, results: Mapping[int, StepResult]) -> None:
        self._results = dict(results)

    def run(self, plan: StepPlan) -> StepResult:
        """Return what the recorded run answered to this step.

        Raises:
            ValueError: the step was not recorded, or computed other sequences.
        """
        result = self._results.get(plan.step_id)
        if result is None:
            raise ValueError(f"step {plan.step_id} was not recorded")
        sampled = {part.sequence_id for part in plan.slices if part.sample}
        answered = set(result.tokens) | (set(result.failures) & sampled)
        if answered != sampled:
            raise ValueError(
                f"step {plan.step_id} samples for sequences {sorted(sampled)}, "
                f"but the recorded one answered {sorted(answered)}"
            )
        return result
