"""An executor without a model: it adds the predicted time of each step to the clock.

On a virtual clock this is the simulator's executor; on a real one it stands in for a model, at
the speed of another machine. Its tokens are arbitrary but reproducible: a function of the seed,
the sequence's index and the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
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


class Sleeper(Protocol):
    """The part of a clock that an executor needs."""

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...


class StepCost(Protocol):
    """Predicts how long a step takes."""

    def seconds(self, plan: StepPlan) -> float:
        """Return the predicted time of the plan, in seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearStepCost:
    """A fixed time a step, plus a time for each prefill token and each decoding sequence.

    All in seconds. A slice of one token counts as decode, a longer one as prefill.
    """

    base_s: float
    prefill_token_s: float
    decode_s: float

    def seconds(self, plan: StepPlan) -> float:
        """Return the predicted time of the plan, in seconds."""
        num_decodes = sum(part.count == 1 for part in plan.slices)
        num_prefill_tokens = sum(part.count for part in plan.slices if part.count > 1)
        return self.base_s + self.prefill_token_s * num_prefill_tokens + self.decode_s * num_decodes


@dataclass(slots=True)
class _SimulatedSequence:
    new: NewSequence
    output_length: int | None
    num_outputs: int = 0
    num_blocks: int = 0


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
        output_length: Callable[[NewSequence], int | None] = lambda _: None,
    ) -> None:
        self._cost = cost
        self._clock = clock
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._output_length = output_length
        self._sequences: dict[SequenceId, _SimulatedSequence] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """Spend the predicted time and draw a token for each slice that samples.

        Raises:
            ValueError: the plan names a sequence, block or position that does not exist.
        """
        for sequence_id in plan.released:
            self._sequences.pop(sequence_id, None)
        for new in plan.new_sequences:
            self._sequences[new.sequence_id] = _SimulatedSequence(new, self._output_length(new))
        for update in plan.table_updates:
            self._update_table(update)
        elapsed_s = self._cost.seconds(plan)
        self._clock.sleep(elapsed_s)
        tokens: dict[SequenceId, SampledToken] = {}
        failures: dict[SequenceId, str] = {}
        for part in plan.slices:
            self._run_slice(part, tokens, failures)
        return StepResult(plan.step_id, tokens, failures, elapsed_s=elapsed_s)

    def _update_table(self, update: TableUpdate) -> None:
        sequence = self._get(update.sequence_id)
        bad = [b for b in update.block_ids if not 0 <= b < self._num_blocks]
        if bad:
            raise ValueError(f"sequence {update.sequence_id}: block {bad[0]} does not exist")
        if update.first_index > sequence.num_blocks:
            raise ValueError(f"sequence {update.sequence_id}: its block table has a gap")
        sequence.num_blocks = update.first_index + len(update.block_ids)

    def _run_slice(
        self,
        part: Slice,
        tokens: dict[SequenceId, SampledToken],
        failures: dict[SequenceId, str],
    ) -> None:
        sequence = self._get(part.sequence_id)
        self._check_positions(part, sequence)
        sampling = sequence.new.sampling
        if sampling.logprobs is not None or sampling.prompt_logprobs is not None:
            failures[part.sequence_id] = "the simulated executor has no log-probabilities"
        elif part.sample:
            tokens[part.sequence_id] = SampledToken(self._draw(sequence))

    def _check_positions(self, part: Slice, sequence: _SimulatedSequence) -> None:
        end = part.start + part.count
        num_tokens = len(sequence.new.prompt_token_ids) + sequence.num_outputs
        if part.start < 0 or part.count < 1 or end > num_tokens:
            raise ValueError(
                f"sequence {part.sequence_id}: positions {part.start} to {end - 1} "
                f"of {num_tokens} tokens"
            )
        if end > sequence.num_blocks * self._block_size:
            raise ValueError(f"sequence {part.sequence_id}: position {end - 1} has no block")

    def _draw(self, sequence: _SimulatedSequence) -> int:
        new, position = sequence.new, sequence.num_outputs
        sequence.num_outputs += 1
        stops = new.sampling.stop_token_ids
        length = sequence.output_length
        if stops and length is not None and sequence.num_outputs >= length:
            return stops[0]
        key = f"{new.sampling.seed}:{new.index}:{position}".encode()
        token_id = int.from_bytes(blake2b(key, digest_size=8).digest()) % self._vocab_size
        candidates = ((token_id + step) % self._vocab_size for step in range(self._vocab_size))
        return next((each for each in candidates if each not in stops), token_id)

    def _get(self, sequence_id: SequenceId) -> _SimulatedSequence:
        try:
            return self._sequences[sequence_id]
        except KeyError:
            raise ValueError(f"sequence {sequence_id} is unknown") from None
