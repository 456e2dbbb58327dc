"""Whose turn it is among those who wait.

Between classes the weighted service decides, or with ``priority`` and ``slo`` the keys; a class
below its minimum share goes before all. Inside a class its queue decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.accounts import ClassAccount
from headway.core.policy import Policies
from headway.core.queues import FairQueue, KeyQueue
from headway.core.sequence import Sequence
from headway.core.slots import Slots
from headway.core.work import Work


class Turns:
    """The waiting queues of all classes, and which of them are open.

    Attributes:
        accounts: of all classes.
        line: the queue of the only class, if its order changes with nothing but who comes and goes.
    """

    def __init__(self, work: Work, policies: Policies, slots: Slots) -> None:
        self._policies = policies
        self._slots = slots
        self.accounts = tuple(work.accounts.values())
        self._queues = tuple(account.queue for account in self.accounts)
        self._reserving = tuple(a for a in self.accounts if a.has_reservation)
        self.line = self._only_line()

    # ---------------------------------------------------------------- how many wait

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits."""
        return any(map(len, self._queues))

    @property
    def num_waiting(self) -> int:
        """Sequences in the queues of all classes."""
        return sum(map(len, self._queues))

    @property
    def num_waiting_reserved(self) -> int:
        """Sequences that start in the next step, whatever else is in it."""
        return sum(len(account.queue) for account in self._reserving)

    # ---------------------------------------------------------------- who goes first

    def first(self) -> Sequence | None:
        """Return who would go first now, holds aside."""
        return self.first_of([a for a in self.accounts if len(a.queue)])

    def first_reserved(self) -> Sequence | None:
        """Return who would go first of the classes with reserved capacity."""
        return self.first_of([a for a in self._reserving if len(a.queue)])

    def first_of(self, accounts: list[ClassAccount]) -> Sequence | None:
        """Return who would go first if there were these classes only."""
        if len(accounts) == 1:
            return accounts[0].queue.peek()
        best: Sequence | None = None
        best_turn: tuple[float, ...] = ()
        for account in accounts:
            head = account.queue.peek()
            if head is None:
                continue
            turn = self._turn(head)
            if best is None or turn < best_turn:
                best, best_turn = head, turn
        return best

    def next_heads(self) -> Iterator[Sequence]:
        """Yield who else may come to go first of a class by the tokens that its tenants get."""
        for queue in self._queues:
            if isinstance(queue, FairQueue):
                yield from queue.heads()

    def _turn(self, head: Sequence) -> tuple[float, ...]:
        account = head.account
        by_keys = self._policies.compares_classes
        place = head.cross_key if by_keys else account.service.virtual
        return (not self._slots.is_entitled(account), place, head.sequence_id)

    def _only_line(self) -> KeyQueue | None:
        if len(self.accounts) > 1 or self._policies.looks_at_time:
            return None
        queue = self.accounts[0].queue
        return queue if type(queue) is KeyQueue else None

    # ---------------------------------------------------------------- which classes are open

    @property
    def is_held(self) -> bool:
        """Whether a class holds anybody back."""
        return any(len(account.hold) for account in self.accounts)

    def open_accounts(self, now: float) -> list[ClassAccount]:
        """Return the classes with work that is not held back; holds that are over end."""
        self.reopen_shares()
        if self.is_held and self._is_batch_full():
            self._release_holds()
        return [account for account in self.accounts if self._is_open(account, now)]

    def open_batch(self, size: int, now: float) -> bool:
        """Let go of all holds if as many wait, or somebody's wait is over; return whether so."""
        is_full = self.num_waiting >= size
        if not is_full and not any(self._is_open(account, now) for account in self.accounts):
            return False
        self._release_holds()
        return True

    def reopen_shares(self) -> None:
        """Forget which classes had all that they may have."""
        for account in self.accounts:
            account.has_share_full = False

    def _release_holds(self) -> None:
        for account in self.accounts:
            account.hold.release()

    def _is_batch_full(self) -> bool:
        """Whether as many wait, held or not, as there are slots for them; none at all is full."""
        slots = self._slots
        num_startable = sum(
            min(account.num_waiting_sequences, max(slots.free_for(account), 0))
            for account in self.accounts
            if account.num_waiting_sequences
        )
        return num_startable >= slots.num_free

    def _is_open(self, account: ClassAccount, now: float) -> bool:
        return len(account.queue) > 0 and account.hold.is_open(now, len(account.queue))
