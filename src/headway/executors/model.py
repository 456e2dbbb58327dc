"""Runs plans on a model: the part of an executor that is the same for every backend."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final, Generic

from headway.core.plan import (
    PromptLogprobs,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from headway.executors.passes import passes
from headway.executors.picking import NumpyPicker, Picker
from headway.executors.sampling import SamplingError, sample, token_logprobs
from headway.executors.sequences import SequenceState, SequenceStates
from headway.kernels.ops import Matrix, Ops, Rows, Step, Tensor
from headway.models.checkpoint import Checkpoint
from headway.models.llama import Llama
from headway.models.registry import build_model

_Work = tuple[Slice, SequenceState]

_NOT_FINITE: Final = "the model's values are not finite"

_SCORED_ROWS: Final = 64
"""How many rows of logits of prompt tokens are in memory at a time."""


class ModelExecutor(Generic[Tensor, Matrix, Step]):
    """Implements :class:`headway.core.ports.Executor` for a model on one set of operations.

    A sequence with values that are not finite, or whose token can't be drawn, fails alone; plans
    that were made before this was known may still name it, and report the same failure. It fails in
    the step that computed such values, sampled or not, so that nobody shares what that step wrote.

    The n sequences of a request have one prompt, so its log-probabilities are computed for index 0
    only, and no others are reported.

    With ``max_pass_rows``, a step of more rows goes through the model in several passes (see
    :mod:`headway.executors.passes`), but for a padded one.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        ops: Ops[Tensor, Matrix, Step],
        *,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int = 0,
        picker: Picker | None = None,
        max_pass_rows: int = sys.maxsize,
    ) -> None:
        config = checkpoint.config
        self._max_pass_rows = max_pass_rows
        self._ops = ops
        self._picker: Picker = picker or NumpyPicker()
        self._model: Llama[Tensor, Matrix, Step] = build_model(checkpoint, ops)
        self._forward = ops.compiled(self._model.forward)
        self._states = SequenceStates(
            num_blocks=num_blocks,
            num_swap_blocks=num_swap_blocks,
            block_size=block_size,
            max_positions=config.max_position_embeddings,
            vocab_size=config.vocab_size,
        )

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step.

        Raises:
            ValueError: the plan names a sequence, block or position that does not exist, or its
                padding does not cover its slices. The KV pool and the swap space are as they were.
        """
        started_s = time.perf_counter()
        work = self._states.apply(plan)
        self._move_blocks(plan)
        tokens: dict[SequenceId, SampledToken] = {}
        scores: dict[SequenceId, PromptLogprobs] = {}
        whole = plan.padding is not None
        for some in (work,) if whole else passes(work, self._max_pass_rows):
            sound = [item for item in some if item[1].failure is None]
            if not sound and not whole:
                continue
            rows = [_rows(part, state) for part, state in sound]
            last_rows = _last_rows(sound)
            hidden = self._forward(self._ops.prepare(rows, plan.padding))
            self._fail_where_not_finite(hidden, sound, last_rows)
            self._score_prompts(hidden, sound, last_rows, scores)
            self._sample(hidden, sound, last_rows, tokens)
        failures = {part.sequence_id: state.failure for part, state in work if state.failure}
        for sequence_id in failures:
            scores.pop(sequence_id, None)
        return StepResult(
            plan.step_id, tokens, failures, scores, elapsed_s=time.perf_counter() - started_s
        )

    def _move_blocks(self, plan: StepPlan) -> None:
        """Move what the plan says, in the order that :mod:`headway.core.plan` states."""
        if plan.swap_out:
            self._ops.swap_out(plan.swap_out)
        if plan.copies:
            self._ops.copy_blocks(plan.copies)
        if plan.swap_in:
            self._ops.swap_in(plan.swap_in)

    def _fail_where_not_finite(
        self, hidden: Tensor, work: Sequence[_Work], last_rows: Sequence[int]
    ) -> None:
        is_finite = self._ops.are_finite(hidden)
        if all(is_finite):
            return
        for last_row, (part, state) in zip(last_rows, work, strict=True):
            if not all(is_finite[last_row + 1 - part.count : last_row + 1]):
                state.failure = _NOT_FINITE

    def _sample(
        self,
        hidden: Tensor,
        work: Sequence[_Work],
        last_rows: Sequence[int],
        tokens: dict[SequenceId, SampledToken],
    ) -> None:
        """Draw and append the tokens; record the failure of those that can't be drawn."""
        chosen = [
            (row, part.sequence_id, state)
            for row, (part, state) in zip(last_rows, work, strict=True)
            if part.sample and state.failure is None
        ]
        if not chosen:
            return
        logits = self._ops.logits(hidden, [row for row, _, _ in chosen], self._model.head)
        drawn = sample(logits, [state.draw for _, _, state in chosen], self._picker)
        for (_, sequence_id, state), token in zip(chosen, drawn, strict=True):
            if isinstance(token, SamplingError):
                state.failure = str(token)
            else:
                state.append(token.token_id)
                tokens[sequence_id] = token

    def _score_prompts(
        self,
        hidden: Tensor,
        work: Sequence[_Work],
        last_rows: Sequence[int],
        scores: dict[SequenceId, PromptLogprobs],
    ) -> None:
        """Score the prompt tokens that follow the positions of the step, where asked for.

        They are added to the scores of the passes before.
        """
        for last_row, (part, state) in zip(last_rows, work, strict=True):
            num_top = state.num_scored
            if num_top is None or state.failure is not None:
                continue
            start = part.start + 1
            token_ids = state.tokens[start : min(start + part.count, state.num_prompt_tokens)]
            if not token_ids:
                continue
            try:
                entries = self._score(hidden, last_row + 1 - part.count, token_ids, num_top)
            except SamplingError as error:
                state.failure = str(error)
            else:
                before = scores.get(part.sequence_id, PromptLogprobs(start, ()))
                scores[part.sequence_id] = PromptLogprobs(before.start, before.entries + entries)

    def _score(
        self, hidden: Tensor, first_row: int, token_ids: Sequence[int], num_top: int
    ) -> tuple[TokenLogprobs, ...]:
        entries: list[TokenLogprobs] = []
        for done in range(0, len(token_ids), _SCORED_ROWS):
            some = token_ids[done : done + _SCORED_ROWS]
            rows = range(first_row + done, first_row + done + len(some))
            logits = self._ops.logits(hidden, rows, self._model.head)
            wanted = [(row, token_id, num_top) for row, token_id in enumerate(some)]
            entries.extend(token_logprobs(logits, wanted, self._picker))
        return tuple(entries)


def _rows(part: Slice, state: SequenceState) -> Rows:
    token_ids = state.tokens[part.start : part.start + part.count]
    return Rows(token_ids, part.start, state.block_ids)


def _last_rows(work: Sequence[_Work]) -> list[int]:
    """Return, for each slice, its last row in the step."""
    ends: list[int] = []
    end = 0
    for part, _ in work:
        end += part.count
        ends.append(end - 1)
    return ends
