"""What an executor keeps of each sequence between steps, and the checks of a plan against it.

No tensor is touched here, so that a plan is known to be sound before memory is written.
"""

from __future__ import annotations

from collections import Counter

from headway.core.plan import NewSequence, SequenceId, Slice, StepPlan, TableUpdate
from headway.executors.draw import Draw
from headway.executors.plan_checks import check_moves, check_padding


class SequenceState:
    """One live sequence. What a step would decide again each time is decided here.

    Attributes:
        tokens: the prompt, then every sampled token.
        block_ids: its block table.
        draw: how its next token is drawn.
        num_scored: how many of the best tokens are reported at each position of its prompt; None
            is no report.
        failure: why it failed, if it did. A failed sequence computes nothing more.
    """

    __slots__ = ("block_ids", "draw", "failure", "num_prompt_tokens", "num_scored", "tokens")

    def __init__(self, new: NewSequence) -> None:
        self.tokens = list(new.prompt_token_ids)
        self.num_prompt_tokens = len(self.tokens)
        self.block_ids: list[int] = []
        self.draw = Draw(new.sampling, new.index, 0, new.prompt_token_ids, Counter())
        self.num_scored = None if new.index else new.sampling.prompt_logprobs
        self.failure: str | None = None

    def append(self, token_id: int) -> None:
        """Take a sampled token."""
        self.tokens.append(token_id)
        self.draw.append(token_id)


class SequenceStates:
    """All live sequences of an executor.

    Args:
        num_blocks: block ids are below this.
        num_swap_blocks: block ids of the swap space are below this.
        block_size: positions a block.
        max_positions: a sequence's positions are below this.
        vocab_size: prompt token ids are below this.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        num_swap_blocks: int,
        block_size: int,
        max_positions: int,
        vocab_size: int,
    ) -> None:
        self._num_blocks = num_blocks
        self._num_swap_blocks = num_swap_blocks
        self._block_size = block_size
        self._max_positions = max_positions
        self._vocab_size = vocab_size
        self._states: dict[SequenceId, SequenceState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def apply(self, plan: StepPlan) -> list[tuple[Slice, SequenceState]]:
        """Take what a plan says of sequences and tables; return its slices with their sequences.

        Raises:
            ValueError: the plan names a sequence, block or position that does not exist, or its
                padding does not cover its slices.
        """
        check_moves(plan, num_blocks=self._num_blocks, num_swap_blocks=self._num_swap_blocks)
        if plan.padding is not None:
            num_positions = min(self._max_positions, self._num_blocks * self._block_size)
            check_padding(plan.padding, plan.slices, max_positions=num_positions)
        for sequence_id in plan.released:
            self._states.pop(sequence_id, None)
        for new in plan.new_sequences:
            self._add(new)
        for update in plan.table_updates:
            self._update_table(update)
        return self._check_slices(plan.slices)

    def _add(self, new: NewSequence) -> None:
        if new.sequence_id in self._states:
            raise ValueError(f"sequence {new.sequence_id} is new and already known")
        state = SequenceState(new)
        state.failure = self._fault(new)
        self._states[new.sequence_id] = state

    def _fault(self, new: NewSequence) -> str | None:
        """Return what is wrong with a request that should have been refused, if anything is."""
        named = {
            "prompt": new.prompt_token_ids,
            "logit_bias": [token_id for token_id, _ in new.sampling.logit_bias],
            "stop_token_ids": new.sampling.stop_token_ids,
        }
        for what, token_ids in named.items():
            bad = [t for t in token_ids if not 0 <= t < self._vocab_size]
            if bad:
                return f"token {bad[0]} in {what} is not in the vocabulary of {self._vocab_size}"
        return None

    def _update_table(self, update: TableUpdate) -> None:
        state = self._get(update.sequence_id)
        for block_id in update.block_ids:
            if not 0 <= block_id < self._num_blocks:
                raise ValueError(
                    f"sequence {update.sequence_id}: block {block_id} "
                    f"is not one of {self._num_blocks}"
                )
        if not 0 <= update.first_index <= len(state.block_ids):
            raise ValueError(
                f"sequence {update.sequence_id}: table update at entry {update.first_index} "
                f"of a table of {len(state.block_ids)}"
            )
        state.block_ids[update.first_index :] = update.block_ids

    def _check_slices(self, slices: tuple[Slice, ...]) -> list[tuple[Slice, SequenceState]]:
        found: dict[SequenceId, tuple[Slice, SequenceState]] = {}
        for part in slices:
            if part.sequence_id in found:
                raise ValueError(f"sequence {part.sequence_id} has two slices in one step")
            state = self._get(part.sequence_id)
            if state.failure is None:
                self._check_positions(part, state)
            found[part.sequence_id] = (part, state)
        return list(found.values())

    def _check_positions(self, part: Slice, state: SequenceState) -> None:
        end, num_tokens = part.start + part.count, len(state.tokens)
        fault = None
        if part.start < 0 or part.count < 1 or end > num_tokens:
            fault = f"of {num_tokens} tokens"
        elif end > len(state.block_ids) * self._block_size:
            fault = f"go beyond its table of {len(state.block_ids)} blocks"
        elif end > self._max_positions:
            fault = f"go beyond the context of {self._max_positions}"
        elif part.sample and end != num_tokens:
            fault = f"sample before the end of {num_tokens} tokens"
        if fault is not None:
            where = f"sequence {part.sequence_id}: positions {part.start} to {end - 1}"
            raise ValueError(f"{where} {fault}")

    def _get(self, sequence_id: SequenceId) -> SequenceState:
        try:
            return self._states[sequence_id]
        except KeyError:
            raise ValueError(f"sequence {sequence_id} is unknown") from None
