"""Whom to preempt. Inside the order that decides who may take from whom, least work is lost, or
the newest goes.

Nobody is a victim who was preempted as often as allowed, who has capacity reserved, or who started
in the step that is being planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headway.core.accounts import ClassAccount
from headway.core.events import PreemptionCause
from headway.core.limits import SchedulerLimits, VictimChoice
from headway.core.sequence import Sequence
from headway.core.work import Work


class Victims:
    """Finds the sequences that others may displace."""

    def __init__(self, work: Work, limits: SchedulerLimits, priority_threshold: int | None) -> None:
        self._work = work
        self._max_preemptions = limits.max_preemptions
        self._threshold = priority_threshold
        self._takes_newest = limits.preemption_victim is VictimChoice.NEWEST
        self._lowest_running: dict[ClassAccount, int] = {}
        self._lowest_at: int | None = None

    @property
    def looks_at_priority(self) -> bool:
        """Whether work of a lower priority gives way to those who wait."""
        return self._threshold is not None

    def for_growth(self, needy: Sequence, turn: int, is_own_class: bool) -> Sequence | None:
        """Return who gives blocks to a running sequence that must grow; None is nobody.

        It is one of its class if that has its largest share already.

        Borrowers first, then best-effort work, then whoever loses least, or is the newest, among
        the sequences with less seniority. The most senior one can take from all, so it always
        finishes. A promise is kept by whoever can give way, senior or not.
        """
        rank = _rank(needy)
        eligible = self._displaceable(self._work.running.values(), turn)
        if not needy.is_promised:
            eligible = [s for s in eligible if _rank(s) > rank]
        if is_own_class:
            eligible = [s for s in eligible if s.account is needy.account]
        borrowers = [s for s in eligible if s.lenders and s.is_borrower]
        return min(borrowers or eligible, key=self._by_kind_and_choice, default=None)

    def may_exist(self, waiting: Sequence, turn: int | None) -> bool:
        """Whether it is worth while to look for somebody whom a waiting sequence may displace."""
        if waiting.account.is_below_minimum or waiting.num_passed:
            return True
        if self._threshold is None:
            return False
        account, lowest = waiting.account, self._lowest(turn)
        is_full = account.num_running >= account.max_running
        own = lowest.get(account, -math.inf)
        found = own if is_full else max(lowest.values(), default=-math.inf)
        return found >= waiting.priority + self._threshold

    def _lowest(self, turn: int | None) -> dict[ClassAccount, int]:
        """Return the number of the lowest priority in each class that can be displaced.

        It is found once a turn; who starts in the turn is no victim in it. Between turns, which
        is None, it is found anew.
        """
        if turn is None or self._lowest_at != turn:
            self._lowest_at = turn
            lowest: dict[ClassAccount, int] = {}
            self._lowest_running = lowest
            most = self._max_preemptions
            for sequence in self._work.running.values():
                account = sequence.account
                known = lowest.get(account)
                is_lower = known is None or sequence.priority > known
                if is_lower and sequence.num_preemptions < most:
                    lowest[account] = sequence.priority
        return self._lowest_running

    def for_start(self, waiting: Sequence, turn: int) -> list[tuple[Sequence, PreemptionCause]]:
        """Return whom a waiting sequence may displace, the first to go first."""
        if not self.may_exist(waiting, turn):
            return []
        borrowers = self._displaceable(waiting.borrowers.values(), turn)
        found = [(s, PreemptionCause.HEAD) for s in sorted(borrowers, key=lambda s: -s.turn)]
        running = self._work.running.values()
        if waiting.account.is_below_minimum:
            found += self._above_minimum(waiting, self._displaceable(running, turn))
        if self._threshold is not None:
            found += self._lower(waiting, self._threshold, self._displaceable(running, turn))
        return _once_each(found)

    def _above_minimum(
        self, waiting: Sequence, displaceable: list[Sequence]
    ) -> list[tuple[Sequence, PreemptionCause]]:
        """Return sequences of other classes, as many of each as it has above its minimum."""
        left = {a: a.num_running - a.min_running for a in self._work.accounts.values()}
        found: list[tuple[Sequence, PreemptionCause]] = []
        for sequence in sorted(displaceable, key=self._by_kind_and_choice):
            account = sequence.account
            if account is not waiting.account and left[account] > 0:
                left[account] -= 1
                found.append((sequence, PreemptionCause.SHARE))
        return found

    def _lower(
        self, waiting: Sequence, threshold: int, displaceable: list[Sequence]
    ) -> list[tuple[Sequence, PreemptionCause]]:
        """Return sequences of lower priority, the lowest first.

        Not those that have aged past the newcomer: they would go before it in the queue as well.
        """
        most = waiting.priority + threshold

        def order(sequence: Sequence) -> tuple[float, ...]:
            return (-sequence.priority, *self._by_kind_and_choice(sequence))

        left = {a: a.num_running - a.min_running for a in self._work.accounts.values()}
        found: list[tuple[Sequence, PreemptionCause]] = []
        lower = [s for s in displaceable if s.priority >= most and s.cross_key > waiting.cross_key]
        for sequence in sorted(lower, key=order):
            account = sequence.account
            if account is waiting.account or left[account] > 0:
                left[account] -= 1
                found.append((sequence, PreemptionCause.PRIORITY))
        return found

    def _by_kind_and_choice(self, sequence: Sequence) -> tuple[float, ...]:
        kind = (not _is_borrower(sequence), not sequence.account.settings.best_effort)
        if self._takes_newest:
            return (*kind, *(-each for each in sequence.seniority))
        num_lost = self._work.memory.num_own_positions(sequence)
        return (*kind, num_lost + self._work.lockstep.num_behind(sequence), -sequence.sequence_id)

    def _displaceable(self, running: Iterable[Sequence], turn: int) -> list[Sequence]:
        most = self._max_preemptions
        return [
            s
            for s in running
            if s.num_preemptions < most
            and s.turn != turn
            and not s.is_promised
            and not s.account.has_reservation
        ]


def _rank(sequence: Sequence) -> tuple[bool, tuple[float, ...]]:
    """Return the total order of who gives way to whom; borrowers stand behind everybody."""
    return (_is_borrower(sequence), sequence.seniority)


def _is_borrower(sequence: Sequence) -> bool:
    return bool(sequence.lenders) and sequence.is_borrower  # few have lenders, and many are asked


def _once_each(
    found: list[tuple[Sequence, PreemptionCause]],
) -> list[tuple[Sequence, PreemptionCause]]:
    kept: dict[int, tuple[Sequence, PreemptionCause]] = {}
    for sequence, cause in found:
        kept.setdefault(sequence.sequence_id, (sequence, cause))
    return list(kept.values())
