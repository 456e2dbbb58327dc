"""One step while it is being planned: who gets how many tokens of the budget."""

from __future__ import annotations

from headway.core.plan import SequenceId
from headway.core.sequence import Sequence


class StepDraft:
    """Slices chosen so far. Nothing of a sequence changes before the draft is committed.

    Guards: the counts never exceed the budget.
    """

    __slots__ = ("budget", "counts", "has_preempted", "sequences")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.sequences: dict[SequenceId, Sequence] = {}
        self.counts: dict[SequenceId, int] = {}
        self.has_preempted = False

    def add(self, sequence: Sequence, count: int) -> None:
        """Give ``count`` tokens of the budget to a sequence."""
        self.sequences[sequence.sequence_id] = sequence
        self.counts[sequence.sequence_id] = count
        self.budget -= count

    def withdraw(self, sequence: Sequence) -> None:
        """Take back what a sequence was given, if anything: it was preempted."""
        self.has_preempted = True
        if self.sequences.pop(sequence.sequence_id, None) is not None:
            self.budget += self.counts.pop(sequence.sequence_id)
