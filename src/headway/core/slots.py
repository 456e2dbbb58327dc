"""How many sequences of each class may run: the shares, binding at every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headway.core.accounts import ClassAccount
from headway.core.sequence import Sequence as LiveSequence
from headway.core.work import Work

_NOBODY: Counter[ClassAccount] = Counter()


class Slots:
    """Divides ``max_num_seqs`` among the classes."""

    def __init__(self, work: Work, max_num_seqs: int) -> None:
        self._work = work
        self._max_num_seqs = max_num_seqs
        self._accounts = tuple(work.accounts.values())

    @property
    def num_free(self) -> int:
        """Slots that nobody holds."""
        return self._max_num_seqs - len(self._work.running) - self._work.num_ghosts

    def free_for(self, account: ClassAccount, leaving: Sequence[LiveSequence] = ()) -> int:
        """Return how many more sequences of the class may start, if those left that are leaving."""
        leaving_of = Counter(s.account for s in leaving) if leaving else _NOBODY
        free = self.num_free + len(leaving)
        for other in self._accounts:
            if other is not account:
                free -= max(other.num_unused_slots + leaving_of[other], 0)
        return min(free, account.max_running - account.num_running + leaving_of[account])

    def is_entitled(self, account: ClassAccount) -> bool:
        """Whether the next slot of the class is its own: reserved, or its minimum share."""
        return account.has_reservation or account.is_below_minimum
