"""A journal as a step log: what each step computed, and how long device and host took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headway.core.plan import BlockMove, Padding, Slice, StepPlan
from headway.engine import records
from headway.profiles.features import ObservedStep
from headway.profiles.shape import StepShape


def observed_steps(lines: Iterable[records.Line]) -> Iterator[ObservedStep]:
    """Yield the steps of a journal that were computed well, in order.

    What the host took is from the end of the step before, if the engine wasn't idle since, to the
    end of this one, less the time of the device. Where two plans are in flight it isn't known.
    """
    pending: dict[int, tuple[float, StepShape]] = {}
    free_since: float | None = None
    for line in lines:
        record = line.record
        if isinstance(record, records.Header):
            pending, free_since = {}, None
        elif isinstance(record, records.Schedule):
            if record.plan.get("kind") == "idle":
                free_since = None
                continue
            began = record.now if free_since is None else free_since
            pending[record.plan["step_id"]] = (began, _shape(record.plan))
        elif isinstance(record, records.Apply):
            began, shape = pending.pop(record.result.step_id)
            seconds = record.result.elapsed_s
            is_alone, free_since = not pending, record.now
            if not record.result.is_lost and not record.result.failures:
                host_s = max(record.now - began - seconds, 0.0) if is_alone else 0.0
                yield ObservedStep(shape, seconds, host_s)


def _shape(plan: dict[str, Any]) -> StepShape:
    padding = plan["padding"]
    return StepShape.of_plan(
        StepPlan(
            plan["step_id"],
            tuple(Slice(*part) for part in plan["slices"]),
            swap_out=tuple(BlockMove(*move) for move in plan["swap_out"]),
            swap_in=tuple(BlockMove(*move) for move in plan["swap_in"]),
            padding=None if padding is None else Padding(**padding),
        )
    )
