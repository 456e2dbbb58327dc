"""One step while it is being planned: who gets how many tokens of the budget."""

from __future__ import annotations

from headway.core.accounts import ClassAccount
from headway.core.plan import BlockMove, Padding, SequenceId
from headway.core.sequence import Sequence


class StepDraft:
    """Slices chosen so far. No sequence counts them as scheduled before the draft is committed.

    Guards: the slices never exceed the budget.
    """

    __slots__ = (
        "_class_tokens",
        "budget",
        "chunks",
        "copies",
        "decodes",
        "freed_swap_blocks",
        "grown",
        "has_preempted",
        "num_chunk_tokens",
        "padding",
        "step_id",
        "swap_in",
        "turn",
        "withheld",
    )

    def __init__(self, step_id: int, turn: int, budget: int) -> None:
        self.step_id = step_id
        self.turn = turn  # calls of ``schedule``; not each becomes a step
        self.budget = budget
        self.withheld = 0  # of the budget, for long prefills
        self.decodes: list[Sequence] = []
        self.chunks: dict[SequenceId, tuple[Sequence, int]] = {}
        self.num_chunk_tokens = 0
        self._class_tokens: dict[ClassAccount, int] = {}
        self.grown: list[Sequence] = []  # decodes whose block tables are longer now
        self.copies: list[BlockMove] = []
        self.swap_in: list[BlockMove] = []
        self.freed_swap_blocks: list[int] = []
        self.padding: Padding | None = None
        self.has_preempted = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        return not self.decodes and not self.chunks

    def class_tokens(self, account: ClassAccount) -> int:
        """Return how many tokens of chunks the class has."""
        return self._class_tokens.get(account, 0)

    def add_decodes(self, sequences: list[Sequence]) -> None:
        """Give one token each to sequences."""
        self.decodes += sequences
        self.budget -= len(sequences)

    def add(self, sequence: Sequence, count: int) -> None:
        """Give ``count`` tokens of the budget to a sequence.

        They count as service at once, so that the next choice in this step knows of them.
        """
        sequence.charge_prompt(sequence.num_scheduled_tokens + count)
        self.chunks[sequence.sequence_id] = (sequence, count)
        self._charge(sequence.account, count)

    def withdraw(self, sequence: Sequence) -> None:
        """Take back what a sequence was given, if anything: it was preempted."""
        self.has_preempted = True
        chunk = self.chunks.pop(sequence.sequence_id, None)
        if chunk is not None:
            self._charge(sequence.account, -chunk[1])
        elif sequence in self.decodes:
            self.decodes.remove(sequence)
            self.budget += 1

    def _charge(self, account: ClassAccount, count: int) -> None:
        self.budget -= count
        self.num_chunk_tokens += count
        self._class_tokens[account] = self.class_tokens(account) + count
