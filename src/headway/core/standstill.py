"""When nobody who waits can start, and so long as that needs no second look."""

from __future__ import annotations

from headway.core.limits import SchedulerLimits
from headway.core.policy import Policies
from headway.core.queues import KeyQueue
from headway.core.turns import Turns
from headway.core.work import Work


class Standstill:
    """Remembers what there was when nobody could start beside decodes alone.

    Attributes:
        may_last: whether nobody can start either while others only decode on.
    """

    def __init__(
        self, work: Work, limits: SchedulerLimits, policies: Policies, turns: Turns
    ) -> None:
        self._work = work
        self._turns = turns
        self.may_last = self._decides_alike(limits, policies)
        self._situation: tuple[int, ...] | None = None

    @property
    def lasts(self) -> bool:
        """Whether it was noted, and nobody came, started, stopped or ended since."""
        return self._situation is not None and self._situation == self._situation_now()

    def begin(self) -> None:
        """Note that nobody can start now."""
        self._situation = self._situation_now()

    def end(self) -> None:
        """Note that somebody may start."""
        self._situation = None

    def _situation_now(self) -> tuple[int, ...]:
        """Return numbers one of which changes whenever anybody comes, starts, stops or ends."""
        counters = self._work.counters
        return (
            counters.submitted,
            counters.preemptions,
            len(self._work.running),
            self._turns.num_waiting,
        )

    def _decides_alike(self, limits: SchedulerLimits, policies: Policies) -> bool:
        """Whether who can't start beside decodes alone can't beside their next tokens either.

        These only take blocks. So it is, unless the order of those who wait changes with the tokens
        that others get or with time, or a class that reaches its share leaves slots to others, or a
        prompt of which less is in the cache by then lets others go first.
        """
        accounts = self._turns.accounts
        return (
            all(type(account.queue) is KeyQueue for account in accounts)
            and (len(accounts) == 1 or policies.compares_classes)
            and not policies.looks_at_time
            and not any(a.has_reservation or a.min_running for a in accounts)
            and not self._work.memory.has_shares
            and limits.enable_chunked_prefill
            and limits.max_partial_prefills is None
            and limits.max_long_partial_prefills is None
        )
