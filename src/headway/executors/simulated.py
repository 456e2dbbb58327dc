"""An executor without a model: it adds the predicted time of each step to the clock.

On a virtual clock this is the simulator's executor; on a real one it stands in for a model, at
the speed of another machine. Its tokens are arbitrary but reproducible: a function of the seed,
the sequence's index and the position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from headway.core.plan import (
    NewSequence,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TableUpdate,
)
from headway.executors.plan_checks import check_moves, check_padding
from headway.executors.simulated_tokens import ArbitraryVocabulary
from headway.profiles.shape import StepCost, StepShape


class Sleeper(Protocol):
    """The part of a clock that an executor needs."""

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...


@dataclass(slots=True)
class _SimulatedSequence:
    num_tokens: int  # of the prompt, and sampled
    end: int  # tokens with which it has drawn a stop token
    upcoming: Iterator[SampledToken]
    failure: str | None
    num_positions: int = 0  # that its table has room for


class SimulatedExecutor:
    """Implements :class:`headway.core.ports.Executor` on a cost model.

    ``output_length`` knows how long each answer is, as a trace does; where it returns None the
    answer runs until ``max_tokens``. A sequence that reaches its length draws a stop token, so it
    needs one. Log-probabilities are refused: there is no model to give them.
    """

    def __init__(
        self,
        cost: StepCost,
        clock: Sleeper,
        *,
        num_blocks: int,
        block_size: int,
        vocab_size: int,
        num_swap_blocks: int = 0,
        output_length: Callable[[NewSequence], int | None] = lambda _: None,
    ) -> None:
        self._cost = cost
        self._clock = clock
        self._num_blocks = num_blocks
        self._num_swap_blocks = num_swap_blocks
        self._block_size = block_size
        self._vocabulary = ArbitraryVocabulary(vocab_size)
        self._output_length = output_length
        self._sequences: dict[SequenceId, _SimulatedSequence] = {}

    def run(self, plan: StepPlan, shape: StepShape | None = None) -> StepResult:
        """Spend the predicted time and draw a token for each slice that samples.

        ``shape`` is that of the whole step, where not all of it is in the plan's slices.

        Raises:
            ValueError: the plan names a sequence, block or position that does not exist, or its
                padding does not cover its slices. No time has passed and no token is drawn.
        """
        self._check_blocks(plan)
        self._update_sequences(plan)
        work = self._find(plan.slices)
        elapsed_s = self._cost.seconds(shape or StepShape.of_plan(plan))
        self._clock.sleep(elapsed_s)
        tokens: dict[SequenceId, SampledToken] = {}
        failures: dict[SequenceId, str] = {}
        for (sequence_id, _, _, sample), sequence in zip(plan.slices, work, strict=True):
            if sequence.failure is not None:
                failures[sequence_id] = sequence.failure
            elif sample:
                tokens[sequence_id] = next(sequence.upcoming)
                sequence.num_tokens += 1
        return StepResult(plan.step_id, tokens, failures, elapsed_s=elapsed_s)

    # ---------------------------------------------------------------- many steps at once

    def num_left(self, sequence_id: SequenceId) -> int:
        """Return with how many tokens a sequence draws a stop token; 0 if it can't go on."""
        sequence = self._sequences[sequence_id]
        return 0 if sequence.failure is not None else sequence.end - sequence.num_tokens

    def draw(self, sequence_id: SequenceId, count: int) -> list[int]:
        """Draw the next tokens of a sequence."""
        sequence = self._sequences[sequence_id]
        sequence.num_tokens += count
        return [each.token_id for each in islice(sequence.upcoming, count)]

    def forget(self, released: Iterable[SequenceId]) -> None:
        """Forget sequences, as a plan that released them would."""
        for sequence_id in released:
            self._sequences.pop(sequence_id, None)

    def grow(self, updates: Iterable[TableUpdate]) -> None:
        """Take over how the block tables have grown in these steps."""
        for update in updates:
            self._update_table(update)

    # ---------------------------------------------------------------- parts of a plan

    def _check_blocks(self, plan: StepPlan) -> None:
        check_moves(plan, num_blocks=self._num_blocks, num_swap_blocks=self._num_swap_blocks)
        if plan.padding is not None:
            num_positions = self._num_blocks * self._block_size
            check_padding(plan.padding, plan.slices, max_positions=num_positions)

    def _update_sequences(self, plan: StepPlan) -> None:
        self.forget(plan.released)
        for new in plan.new_sequences:
            self._add(new)
        for update in plan.table_updates:
            self._update_table(update)

    def _add(self, new: NewSequence) -> None:
        if new.sequence_id in self._sequences:
            raise ValueError(f"sequence {new.sequence_id} is new and already known")
        sampling, length = new.sampling, self._output_length(new)
        num_prompt_tokens = len(new.prompt_token_ids)
        wants_scores = sampling.logprobs is not None or sampling.prompt_logprobs is not None
        self._sequences[new.sequence_id] = _SimulatedSequence(
            num_tokens=num_prompt_tokens,
            end=num_prompt_tokens + length if length and sampling.stop_token_ids else _NEVER,
            upcoming=self._vocabulary.draws(
                seed=sampling.seed,
                index=new.index,
                stop_token_ids=sampling.stop_token_ids,
                length=length,
            ),
            failure=_NO_SCORES if wants_scores else None,
        )

    def _update_table(self, update: TableUpdate) -> None:
        sequence = self._get(update.sequence_id)
        block_ids = update.block_ids
        if block_ids and not 0 <= min(block_ids) <= max(block_ids) < self._num_blocks:
            bad = next(b for b in block_ids if not 0 <= b < self._num_blocks)
            raise ValueError(f"sequence {update.sequence_id}: block {bad} does not exist")
        if not 0 <= update.first_index * self._block_size <= sequence.num_positions:
            raise ValueError(f"sequence {update.sequence_id}: its block table has a gap")
        num_blocks = update.first_index + len(update.block_ids)
        sequence.num_positions = num_blocks * self._block_size

    def _find(self, slices: tuple[Slice, ...]) -> list[_SimulatedSequence]:
        """Return the sequence of each slice; in one loop, since there are hundreds a step."""
        found: dict[SequenceId, _SimulatedSequence] = {}
        sequences = self._sequences
        for part in slices:
            sequence_id, start, count, sample = part
            sequence = found[sequence_id] = sequences.get(sequence_id) or self._get(sequence_id)
            num_tokens, end = sequence.num_tokens, start + count
            is_sound = 0 <= start < end <= num_tokens and end <= sequence.num_positions
            if not is_sound or (sample and end != num_tokens):
                _refuse(part, sequence)
        if len(found) < len(slices):
            seen = [part.sequence_id for part in slices]
            twice = next(sequence_id for sequence_id in seen if seen.count(sequence_id) > 1)
            raise ValueError(f"sequence {twice} has two slices in one step")
        return list(found.values())

    def _get(self, sequence_id: SequenceId) -> _SimulatedSequence:
        try:
            return self._sequences[sequence_id]
        except KeyError:
            raise ValueError(f"sequence {sequence_id} is unknown") from None


_NEVER = 1 << 62
_NO_SCORES = "the simulated executor has no log-probabilities"


def _refuse(part: Slice, sequence: _SimulatedSequence) -> None:
    """Say what is wrong with a slice, unless plans that were already made may be so."""
    if sequence.failure is not None:
        return
    end, num_tokens = part.start + part.count, sequence.num_tokens
    where = f"sequence {part.sequence_id}: positions {part.start} to {end - 1}"
    if not 0 <= part.start < end <= num_tokens:
        raise ValueError(f"{where} of {num_tokens} tokens")
    if end > sequence.num_positions:
        raise ValueError(f"{where} go beyond its table of {sequence.num_positions} positions")
    raise ValueError(f"{where} sample before the end of {num_tokens} tokens")
