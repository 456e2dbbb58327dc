"""Policies: in which order to look at waiting work, and whom to preempt."""

from __future__ import annotations

from typing import Protocol

from headway.core.plan import SequenceId
from headway.core.sequence import Sequence
from headway.core.waiting import OrderKey


class Policy(Protocol):
    """The questions that the scheduler asks; it decides everything else itself."""

    def order(self, sequence: Sequence) -> OrderKey:
        """Return the key by which waiting work is sorted, smallest first."""
        ...

    def victim(self, running: dict[SequenceId, Sequence]) -> Sequence:
        """Choose whom to preempt when blocks run out. ``running`` is in order of admission."""
        ...


class FirstComeFirstServed:
    """Strictly by arrival; the newest running sequence gives way.

    Since nobody is passed, all running sequences are older than all waiting ones, and the oldest
    can take blocks from everybody: it always finishes, so there is no deadlock and no starvation.
    """

    def order(self, sequence: Sequence) -> OrderKey:
        """Sequence ids grow with arrival."""
        return (sequence.sequence_id,)

    def victim(self, running: dict[SequenceId, Sequence]) -> Sequence:
        """The newest has the least work to lose and is nobody's elder."""
        return running[next(reversed(running))]
