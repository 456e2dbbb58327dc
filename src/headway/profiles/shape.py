"""What a step computes, in the numbers on which its time depends; and who predicts that time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headway.core.plan import StepPlan

_FEW_ROWS = 4


class Chunk(NamedTuple):
    """A slice longer than one position: ``length`` new ones behind ``num_cached`` old ones."""

    num_cached: int
    length: int


class StepShape(NamedTuple):
    """What a step computes. Positions that attend count themselves.

    Attributes:
        chunks: slices longer than one position: of prompts, or recomputed after preemption.
        num_decodes: slices of one position.
        decode_context: positions over which the decodes attend, all together.
        longest_decode: positions over which the one with the longest context attends.
        shortest_decode: the same of the shortest.
        num_swapped_blocks: blocks moved out or in.
    """

    chunks: tuple[Chunk, ...] = ()
    num_decodes: int = 0
    decode_context: int = 0
    longest_decode: int = 0
    shortest_decode: int = 0
    num_swapped_blocks: int = 0

    @property
    def num_prefill_tokens(self) -> int:
        """Positions in chunks."""
        return sum(chunk.length for chunk in self.chunks)

    @property
    def num_tokens(self) -> int:
        """Positions in all."""
        return self.num_prefill_tokens + self.num_decodes

    @property
    def has_few_rows(self) -> bool:
        """Whether the step waits for memory more than it computes: up to four positions do."""
        return self.num_tokens <= _FEW_ROWS

    @property
    def num_sequences(self) -> int:
        """Slices: each has a row for the head of the model, sampled or not."""
        return len(self.chunks) + self.num_decodes

    def beside(self, number: int, context: int, longest: int, shortest: int) -> StepShape:
        """Return the shape with so many further decodes, if any, that attend over that much."""
        if number == 0:
            return self
        if self.num_decodes:
            longest = max(longest, self.longest_decode)
            shortest = min(shortest, self.shortest_decode)
        return StepShape(
            self.chunks,
            self.num_decodes + number,
            self.decode_context + context,
            longest,
            shortest,
            self.num_swapped_blocks,
        )

    @classmethod
    def of_plan(cls, plan: StepPlan) -> StepShape:
        """Return the shape of a plan, with its padding."""
        num_swapped = len(plan.swap_out) + len(plan.swap_in)
        if plan.padding is not None:
            return cls._padded(*plan.padding, num_swapped)
        chunks: list[Chunk] = []
        ends: list[int] = []
        for _, start, count, _ in plan.slices:
            if count == 1:
                ends.append(start + 1)
            else:
                chunks.append(Chunk(start, count))
        if not ends:
            return cls(tuple(chunks), num_swapped_blocks=num_swapped)
        return cls(tuple(chunks), len(ends), sum(ends), max(ends), min(ends), num_swapped)

    @classmethod
    def _padded(cls, num_sequences: int, num_rows: int, length: int, num_swapped: int) -> StepShape:
        if num_rows > 1:
            chunk = Chunk(length - num_rows, num_rows)
            return cls((chunk,) * num_sequences, num_swapped_blocks=num_swapped)
        context = num_sequences * length
        return cls((), num_sequences, context, length, length, num_swapped)


class StepCost(Protocol):
    """Predicts how long a step takes. Linear ones are :class:`headway.core.costs.StepCosts`."""

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step, in seconds."""
        ...
