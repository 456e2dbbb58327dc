"""What steps were made of, counted beside a real executor or a cost model."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.plan import SequenceId, StepPlan, StepResult
from headway.core.ports import Executor
from headway.profiles.roofline import Parts, Roofline
from headway.profiles.shape import StepCost, StepShape


@dataclass(slots=True)
class Tally:
    """Sums over steps.

    Attributes:
        num_steps: how many.
        busy_s: their time.
        num_positions: computed, with padding.
        num_useful: those of them that are part of a sequence.
        sequence_s: sequences times the time that each step took.
    """

    num_steps: int = 0
    busy_s: float = 0.0
    num_positions: int = 0
    num_useful: int = 0
    sequence_s: float = 0.0

    @property
    def padding_share(self) -> float:
        """The share of the computed positions that nobody needed."""
        return 1 - self.num_useful / self.num_positions if self.num_positions else 0.0

    @property
    def mean_batch(self) -> float:
        """Sequences in a step, on average over the time that was computed."""
        return self.sequence_s / self.busy_s if self.busy_s else 0.0


class TallyingExecutor:
    """Runs plans by another executor, and counts.

    Attributes:
        tally: of all steps since it was last replaced.
    """

    def __init__(self, inner: Executor) -> None:
        self.tally = Tally()
        self._inner = inner
        self._known: set[SequenceId] = set()

    def run(self, plan: StepPlan) -> StepResult:
        """Run the plan and count what it computes."""
        result = self._inner.run(plan)
        self._known.difference_update(plan.released)
        self._known.update(new.sequence_id for new in plan.new_sequences)
        tally = self.tally
        tally.num_steps += 1
        tally.busy_s += result.elapsed_s
        tally.num_positions += StepShape.of_plan(plan).num_tokens
        tally.num_useful += sum(part.count for part in plan.slices)
        tally.sequence_s += len(plan.slices) * result.elapsed_s
        return result

    def release_all(self) -> None:
        """Have the executor forget all sequences, so that another scheduler may begin anew."""
        self._inner.run(StepPlan(0, (), released=tuple(self._known)))
        self._known.clear()


class TallyingCost:
    """Implements :class:`StepCost` by another one, and counts what it is asked.

    Attributes:
        num_positions: of all steps, with padding.
        parts: what their time goes to; None where the model doesn't say it.
    """

    def __init__(self, inner: StepCost) -> None:
        self.num_positions = 0
        self.parts = Parts() if isinstance(inner, Roofline) else None
        self._inner = inner

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step."""
        self.num_positions += shape.num_tokens
        if self.parts is not None and isinstance(self._inner, Roofline):
            self.parts = self.parts.plus(self._inner.parts(shape))
        return self._inner.seconds(shape)
