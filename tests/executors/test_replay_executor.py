"""The replay executor answers what was recorded, and refuses what was not."""

from __future__ import annotations

import pytest

from headway.core.plan import SampledToken, SequenceId, Slice, StepPlan, StepResult
from headway.executors.replay import ReplayExecutor

A, B = SequenceId(1), SequenceId(2)
RESULT = StepResult(4, {A: SampledToken(7)}, {B: "broken"}, elapsed_s=0.5)


def plan(step_id: int, *slices: Slice) -> StepPlan:
    return StepPlan(step_id, slices)


def test_the_recorded_answer_comes_back() -> None:
    executor = ReplayExecutor({4: RESULT})
    assert executor.run(plan(4, Slice(A, 0, 3, True), Slice(B, 0, 3, True))) == RESULT


def test_a_failed_slice_need_not_sample() -> None:
    executor = ReplayExecutor({4: RESULT})
    assert executor.run(plan(4, Slice(A, 0, 3, True), Slice(B, 0, 3, False))) == RESULT


def test_a_step_that_was_not_recorded_is_refused() -> None:
    with pytest.raises(ValueError, match="step 5 was not recorded"):
        ReplayExecutor({4: RESULT}).run(plan(5))


def test_other_sequences_than_recorded_are_refused() -> None:
    with pytest.raises(ValueError, match=r"samples for sequences \[2\]"):
        ReplayExecutor({4: RESULT}).run(plan(4, Slice(B, 0, 3, True)))
