"""An executor that computes symbols in place of numbers, and so notices every mistake in a plan.

Where a real executor keeps the keys and values of a position, this one keeps a digest of all
tokens up to it, since that is what they depend on. Before a slice is computed, every earlier
position of its table must hold the digest of exactly this sequence's beginning. A block that was
reused too early, shared before it was written, copied in the wrong order, swapped to the wrong
place or never computed is thus found in the step that reads it, with a message that says who wrote
there last.

Tokens are a function of the sequence's beginning, its seed and its index, so
:func:`headway.testing.symbols.answer` can say what a sequence must get, whatever happened to it on
the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from headway.core.events import Event, Preempted, PreemptionMode
from headway.core.limits import SchedulerLimits
from headway.core.plan import (
    BlockMove,
    NewSequence,
    PromptLogprobs,
    RequestId,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TableUpdate,
    TokenLogprobs,
)
from headway.errors import HeadwayError, InvariantError
from headway.testing.step_limits import check_limits
from headway.testing.symbols import Draws, after, root

_BLANK = -1
_NOBODY = (SequenceId(-1), -1)
_GARBAGE = -2


@dataclass(slots=True)
class _Line:
    """One sequence, as the executor knows it. ``digests[p]`` is that of tokens 0 to p."""

    new: NewSequence
    digests: list[int]
    num_outputs: int = 0
    table: list[int] = field(default_factory=list)
    num_computed: int | None = 0  # None: its table is new, so the next slice says where it is
    failure: str | None = None

    def __str__(self) -> str:
        new = self.new
        return f"sequence {new.sequence_id} ({new.request_id}, index {new.index})"


class _Memory:
    """Blocks of digests, with a note of who wrote each last, and in which step."""

    def __init__(self, kind: str, num_blocks: int, block_size: int) -> None:
        self.kind = kind
        self.blocks = [[_BLANK] * block_size for _ in range(num_blocks)]
        self.notes = ["never written"] * num_blocks
        #: by position: who wrote it, in which step
        self.writers = [[_NOBODY] * block_size for _ in range(num_blocks)]

    def require(self, block_id: int) -> None:
        if not 0 <= block_id < len(self.blocks):
            raise InvariantError(f"{self.kind} {block_id} is not one of {len(self.blocks)}")


class LostStepError(HeadwayError):
    """A plan was made on top of a step that was lost, and can't be carried out without it."""


class SymbolicExecutor:
    """Implements :class:`headway.core.ports.Executor`, and checks all that a plan promises.

    It also checks the limits of a step, which are the scheduler's duty and no executor's.

    Args:
        limits: the scheduler's own.
        draws: how tokens are drawn.
        salt: of a sequence's request. KV of one salt is wrong for another.

    Raises:
        InvariantError: by :meth:`run`, when a plan is wrong.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        draws: Draws | None = None,
        salt: Callable[[RequestId], str] = lambda _: "",
    ) -> None:
        self.draws = draws or Draws()
        self._limits = limits
        self._salt = salt
        self._pool = _Memory("block", limits.num_blocks, limits.block_size)
        self._swap = _Memory("swap block", limits.num_swap_blocks, limits.block_size)
        self._lines: dict[SequenceId, _Line] = {}
        self._ids: dict[tuple[RequestId, int], SequenceId] = {}
        self._failing: dict[SequenceId, str] = {}
        self._error: tuple[Exception, bool] | None = None
        #: sequences that are moved to the swap space by the next plan
        self._swapping: set[SequenceId] = set()
        #: sequences of which nobody knows what they hold, since that step was lost: those that it
        #: computed, and those that it swapped out
        self._lost: dict[SequenceId, int] = {}
        self._lost_swapped: dict[SequenceId, int] = {}
        self._last_step = -1
        self._last_applied = float("inf")

    def __len__(self) -> int:
        """Return how many sequences it keeps."""
        return len(self._lines)

    def __contains__(self, sequence_id: SequenceId) -> bool:
        """Whether it keeps the sequence."""
        return sequence_id in self._lines

    def blocks_of(self, sequence_ids: Iterable[SequenceId]) -> set[int]:
        """Return the blocks in the tables of those sequences; one not met has none."""
        known = (self._lines[each] for each in sequence_ids if each in self._lines)
        return {block_id for line in known for block_id in line.table}

    def fail_sequence(self, sequence_id: SequenceId, message: str) -> None:
        """Let the next slice of a sequence fail: it writes garbage."""
        self._failing[sequence_id] = message

    def fail_next_step(self, error: Exception, *, at_once: bool) -> None:
        """Let the next step raise: before it has any effect, or after it wrote garbage.

        A plan that was made on top of it raises :class:`LostStepError` if it names a sequence that
        was never met; otherwise it fails for the sequences of the lost step.
        """
        self._error = error, at_once

    def see(self, events: Iterable[Event]) -> None:
        """Note who was preempted. Plans bring their events; those of ``Idle`` are to be shown."""
        for event in events:
            if isinstance(event, Preempted):
                sequence_id = self._ids.get((event.request_id, event.index))
                line = self._lines.get(sequence_id) if sequence_id is not None else None
                if line is not None:
                    line.table.clear()
                    line.num_computed = None
                    if event.mode is PreemptionMode.SWAP:
                        self._swapping.add(line.new.sequence_id)

    def note_applied(self, step_id: int) -> None:
        """Note that the scheduler knows the result of this step, but of none after it.

        From the first such note on, what a later step wrote must not be shared.
        """
        self._last_applied = step_id

    def run(self, plan: StepPlan) -> StepResult:
        """Check a plan, move and write symbols, and draw tokens."""
        self.see(plan.events)
        error, self._error = self._error, None
        if error is None:
            return self._run_checked(plan)
        exception, at_once = error
        if not at_once:
            self._run_checked(plan, is_garbage=True)
        self._lose(plan)
        raise exception

    def _run_checked(self, plan: StepPlan, *, is_garbage: bool = False) -> StepResult:
        try:
            result = self._run(plan, is_garbage=is_garbage)
        except LostStepError:
            self._lose(plan)
            raise
        except InvariantError as mistake:
            raise InvariantError(f"step {plan.step_id}: {mistake}") from None
        if not is_garbage:
            self._swapping.clear()
        return result

    def _lose(self, plan: StepPlan) -> None:
        self._lost.update((part.sequence_id, plan.step_id) for part in plan.slices)
        self._lost_swapped.update((sequence_id, plan.step_id) for sequence_id in self._swapping)
        self._swapping.clear()
        for sequence_id in plan.released:  # which will be said again
            if sequence_id in self._lines:
                self._lines[sequence_id].table.clear()

    # ---------------------------------------------------------------- parts of a plan, in order

    def _run(self, plan: StepPlan, *, is_garbage: bool) -> StepResult:
        if plan.step_id <= self._last_step:
            raise InvariantError(f"it comes after step {self._last_step}")
        self._last_step = plan.step_id
        for sequence_id in plan.released:
            self._release(sequence_id)
        for new in plan.new_sequences:
            self._meet(new)
        for update in plan.table_updates:
            self._update_table(update)
        self._check_distinct_targets(plan)
        self._move(plan.swap_out, self._pool, self._swap, plan.step_id)
        self._move(plan.copies, self._pool, self._pool, plan.step_id)
        self._move(plan.swap_in, self._swap, self._pool, plan.step_id)
        lines = self._check_slices(plan)
        check_limits(plan, self._limits)
        sound = [(part, line) for part, line in lines if line.failure is None]
        for part, line in sound:
            self._read(part, line)
        for part, line in sound:
            self._write(part, line, plan.step_id, is_garbage=is_garbage)
        return self._answer(plan, lines)

    def _release(self, sequence_id: SequenceId) -> None:
        line = self._lines.pop(sequence_id, None)
        self._lost.pop(sequence_id, None)
        self._lost_swapped.pop(sequence_id, None)
        if line is not None:
            del self._ids[line.new.request_id, line.new.index]

    def _meet(self, new: NewSequence) -> None:
        if new.sequence_id in self._lines:
            raise InvariantError(f"sequence {new.sequence_id} is new and already known")
        digest = root(self._salt(new.request_id))
        digests = []
        for token_id in new.prompt_token_ids:
            digest = after(digest, token_id)
            digests.append(digest)
        self._lines[new.sequence_id] = _Line(new, digests)
        self._ids[new.request_id, new.index] = new.sequence_id

    def _update_table(self, update: TableUpdate) -> None:
        line = self._line(update.sequence_id)
        if not 0 <= update.first_index <= len(line.table):
            is_excused = self._is_excused(self._lost.get(update.sequence_id))
            kind = LostStepError if is_excused else InvariantError
            raise kind(f"{line}: a table update at entry {update.first_index} of {len(line.table)}")
        for block_id in update.block_ids:
            self._pool.require(block_id)
        line.table[update.first_index :] = update.block_ids
        if len(set(line.table)) < len(line.table):
            raise InvariantError(f"{line}: a block is twice in its table {line.table}")
        if update.first_index == 0:
            line.num_computed = None

    def _check_distinct_targets(self, plan: StepPlan) -> None:
        """No block is written by two moves, and none that more than one sequence holds."""
        holders = self._holders()
        for moves in plan.swap_out, (*plan.copies, *plan.swap_in):
            targets = Counter(move.target for move in moves)
            for target, count in targets.items():
                if count > 1:
                    raise InvariantError(f"two moves go to block {target}: {moves}")
                if moves is not plan.swap_out and holders[target] != 1:
                    raise InvariantError(
                        f"a move goes to block {target}, which {holders[target]} tables hold"
                    )

    def _move(
        self, moves: Iterable[BlockMove], source: _Memory, target: _Memory, step_id: int
    ) -> None:
        for move in moves:
            source.require(move.source)
            target.require(move.target)
            target.blocks[move.target] = source.blocks[move.source].copy()
            target.writers[move.target] = source.writers[move.source].copy()
            target.notes[move.target] = (
                f"moved from {source.kind} {move.source} in step {step_id} "
                f"({source.notes[move.source]})"
            )

    # ---------------------------------------------------------------- slices

    def _check_slices(self, plan: StepPlan) -> list[tuple[Slice, _Line]]:
        lines = [(part, self._line(part.sequence_id)) for part in plan.slices]
        self._note_lost(plan)
        if len({part.sequence_id for part in plan.slices}) < len(lines):
            raise InvariantError(f"a sequence has two slices: {plan.slices}")
        holders = self._holders()
        for part, line in lines:
            if line.failure is not None:
                continue  # planned before its failure was known: the answer will say so again
            self._check_positions(part, line)
            for block_id in self._written(part, line):
                if holders[block_id] != 1:
                    raise InvariantError(
                        f"{line} writes block {block_id}, which {holders[block_id]} tables hold"
                    )
        return lines

    def _note_lost(self, plan: StepPlan) -> None:
        """Let those fail that count on what a lost step did, and their siblings, with them."""
        doomed = {
            self._lines[sequence_id].new.request_id
            for sequence_id, step_id in self._lost.items()
            if sequence_id in self._lines and self._is_excused(step_id)
        }
        swapped_in = {move.target for move in plan.swap_in}
        for part in plan.slices:
            line = self._line(part.sequence_id)
            is_lost = line.new.request_id in doomed
            step_id = self._lost_swapped.pop(part.sequence_id, None)
            if not swapped_in.isdisjoint(line.table):
                is_lost = is_lost or self._is_excused(step_id)
            if is_lost and line.failure is None:
                line.failure = "an earlier step of it was lost"

    def _is_excused(self, lost_step: int | None) -> bool:
        """Whether the scheduler could not know yet that the step was lost."""
        if lost_step is None:
            return False
        return self._last_applied == float("inf") or lost_step > self._last_applied

    def _check_positions(self, part: Slice, line: _Line) -> None:
        end, num_tokens = part.start + part.count, len(line.digests)
        where = f"{line}: positions {part.start} to {end - 1} of {num_tokens}"
        size = self._limits.block_size
        if part.start < 0 or part.count < 1 or end > num_tokens:
            raise InvariantError(f"{where} do not exist")
        if line.num_computed is not None and part.start != line.num_computed:
            raise InvariantError(f"{where}, but {line.num_computed} are computed")
        if end > len(line.table) * size:
            raise InvariantError(f"{where} go beyond its table {line.table}")
        if end > self._limits.max_model_len:
            raise InvariantError(f"{where} go beyond the context")
        wants_token = end == num_tokens and line.num_outputs < line.new.sampling.max_tokens
        if part.sample != wants_token:
            raise InvariantError(f"{where}: sample is {part.sample}")
        if not self._limits.enable_chunked_prefill and end != num_tokens:
            raise InvariantError(f"{where} are a chunk, and there shall be none")

    def _written(self, part: Slice, line: _Line) -> list[int]:
        size = self._limits.block_size
        return line.table[part.start // size : (part.start + part.count - 1) // size + 1]

    def _read(self, part: Slice, line: _Line) -> None:
        """Check that all positions before the slice hold what this sequence has there."""
        size = self._limits.block_size
        for start in range(0, part.start, size):
            block_id = line.table[start // size]
            found = self._pool.blocks[block_id]
            right = line.digests[start : min(start + size, part.start)]
            if found[: len(right)] != right:
                self._complain(line, start, block_id, found, right)
            for writer, step_id in self._pool.writers[block_id][: len(right)]:
                if step_id > self._last_applied and writer != part.sequence_id:
                    raise InvariantError(
                        f"{line}: block {block_id} is shared before step {step_id} was applied "
                        f"(block: {self._pool.notes[block_id]})"
                    )

    def _complain(
        self, line: _Line, start: int, block_id: int, found: list[int], right: list[int]
    ) -> NoReturn:
        offset = next(i for i, digest in enumerate(right) if found[i] != digest)
        what = "nothing" if found[offset] == _BLANK else "something else"
        raise InvariantError(
            f"{line}: block {block_id} holds {what} at position {start + offset} "
            f"(block: {self._pool.notes[block_id]})"
        )

    def _write(self, part: Slice, line: _Line, step_id: int, *, is_garbage: bool) -> None:
        size = self._limits.block_size
        failure = self._failing.pop(part.sequence_id, None)
        if failure is not None:
            line.failure = failure
        is_garbage = is_garbage or line.failure is not None
        writer = (part.sequence_id, step_id)
        for position in range(part.start, part.start + part.count):
            block_id, offset = line.table[position // size], position % size
            self._pool.blocks[block_id][offset] = _GARBAGE if is_garbage else line.digests[position]
            self._pool.writers[block_id][offset] = writer
        quality = "garbage " if is_garbage else ""
        for block_id in self._written(part, line):
            self._pool.notes[block_id] = f"{quality}written by {line} in step {step_id}"
        line.num_computed = part.start + part.count

    def _answer(self, plan: StepPlan, lines: list[tuple[Slice, _Line]]) -> StepResult:
        tokens: dict[SequenceId, SampledToken] = {}
        failures: dict[SequenceId, str] = {}
        prompt_logprobs: dict[SequenceId, PromptLogprobs] = {}
        for part, line in lines:
            if line.failure is not None:
                failures[part.sequence_id] = line.failure
                continue
            scored = _score(line.new, part.start, part.start + part.count)
            if scored is not None:
                prompt_logprobs[part.sequence_id] = scored
            if part.sample:
                tokens[part.sequence_id] = SampledToken(self._draw(line))
        return StepResult(plan.step_id, tokens, failures, prompt_logprobs)

    def _draw(self, line: _Line) -> int:
        token_id = self.draws.token(line.new, line.digests[-1], line.num_outputs)
        line.num_outputs += 1
        line.digests.append(after(line.digests[-1], token_id))
        return token_id

    def _holders(self) -> Counter[int]:
        """Return how many tables hold each block."""
        return Counter(block_id for line in self._lines.values() for block_id in line.table)

    def _line(self, sequence_id: SequenceId) -> _Line:
        try:
            return self._lines[sequence_id]
        except KeyError:
            is_excused = self._is_excused(self._lost.get(sequence_id))
            kind = LostStepError if is_excused else InvariantError
            raise kind(f"sequence {sequence_id} is unknown") from None


def _score(new: NewSequence, start: int, end: int) -> PromptLogprobs | None:
    """Return log-probabilities for the prompt positions that a slice ``[start, end)`` scores."""
    first, last = start + 1, min(end + 1, len(new.prompt_token_ids))
    if new.sampling.prompt_logprobs is None or new.index > 0 or first >= last:
        return None
    scored = (TokenLogprobs(token_id, -1.0) for token_id in new.prompt_token_ids[first:last])
    return PromptLogprobs(first, tuple(scored))
