"""Starts and resumes waiting sequences: who goes first, who may pass, who must wait.

Between classes the weighted service decides, or with ``priority`` and ``slo`` the keys; a class
below its minimum share goes before all. Inside a class its queue decides.

A sequence that goes first but lacks blocks is *blocked*. Others may start before it a bounded
number of times, on blocks *borrowed* from it: they are preempted as soon as it can start with
these, so it never starts later than it would have without them.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.accounts import ClassAccount
from headway.core.draft import StepDraft
from headway.core.limits import Batching, SchedulerLimits
from headway.core.policy import Policies
from headway.core.queues import FairQueue, KeyQueue
from headway.core.sequence import Sequence
from headway.core.slots import Slots
from headway.core.starting import Free, Starting, Verdict
from headway.core.work import Work

_MAX_SKIPPED = 32
"""So many sequences that can't start are looked at in a step, and none behind them."""

_MAX_DEMOTED = 1024
"""So many late sequences are put back in a step, unless nothing else is to do."""


class Admission:
    """Decides who starts in a step."""

    def __init__(
        self,
        work: Work,
        limits: SchedulerLimits,
        policies: Policies,
        slots: Slots,
        starting: Starting,
    ) -> None:
        self._work = work
        self._limits = limits
        self._policies = policies
        self._slots = slots
        self._starting = starting
        self._accounts = tuple(work.accounts.values())
        self._queues = tuple(account.queue for account in self._accounts)
        self._reserving = tuple(a for a in self._accounts if a.has_reservation)
        self._blocked: list[Sequence] = []  # who lacked blocks when last looked at
        self._may_rest = self._decides_alike(limits)
        #: the queue of the only class, if its order stays as it is
        self._line = self._only_line()
        #: what there was when nobody could start beside decodes alone
        self._in_vain: tuple[int, ...] | None = None

    # ---------------------------------------------------------------- whose turn it is

    def run(self, draft: StepDraft, now: float, ahead_of: Sequence | None = None) -> None:
        """Start waiting sequences while slots, budget and blocks last.

        With ``ahead_of`` only those start that go before that running prefill.
        A step that had to preempt admits nobody: the blocks are needed by those who run.
        """
        accounts = self.open_accounts(now)
        if draft.has_preempted or not self._is_worth_while(accounts, draft.turn):
            return
        self._start_from(accounts, draft, now, ahead_of)
        if self._may_rest and ahead_of is None:
            self._in_vain = None if draft.chunks else self._situation()

    def rest(self) -> None:
        """Do as ``run`` does when nobody waits."""
        for account in self._accounts:
            account.has_share_full = False
        if self._slots.num_free > 0:
            self._blocked = []
            self._in_vain = None

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits."""
        return any(map(len, self._queues))

    def _is_worth_while(self, accounts: list[ClassAccount], turn: int | None) -> bool:
        """Whether a slot is free, or somebody may be displaced; else nobody need be asked."""
        if self._slots.num_free > 0:
            return True
        heads = (account.queue.peek() for account in accounts)
        return any(head and self._starting.may_displace(head, turn) for head in heads)

    def starts_nobody(self, now: float) -> bool:
        """Whether ``run`` would start nobody, until somebody comes or leaves; between two turns.

        If so this is as good as a run.
        """
        if any(len(account.hold) for account in self._accounts):
            return False
        if self._in_vain is not None and self._in_vain == self._situation():
            return True
        is_waited_for = self.is_waited_for
        if is_waited_for and self._may_rest:
            return self._would_start_nobody(now)
        if is_waited_for and (self._slots.num_free > 0 or self.num_waiting_reserved):
            return False
        if any(self._starting.may_displace(s, None) for s in self._next_heads()):
            return False
        if self._is_worth_while(self.open_accounts(now), None):
            if is_waited_for:
                return False
            self._blocked = []
        return True

    def _next_heads(self) -> Iterator[Sequence]:
        """Yield who else may come to go first of a class by the tokens that its tenants get."""
        for queue in self._queues:
            if isinstance(queue, FairQueue):
                yield from queue.heads()

    def _would_start_nobody(self, now: float) -> bool:
        """Whether a run beside decodes alone would start nobody; it is tried, and nothing done."""
        accounts, counters = self.open_accounts(now), self._work.counters
        draft = StepDraft(counters.steps, counters.turns + 1, self._limits.max_num_batched_tokens)
        draft.budget -= len(self._work.decoding)
        if self._is_worth_while(accounts, draft.turn):
            if self._might_start(accounts, draft, now):
                return False
            self._in_vain = self._situation()
        return True

    def _might_start(self, accounts: list[ClassAccount], draft: StepDraft, now: float) -> bool:
        """Whether anybody can start, or can for all that is known without a close look."""
        free = self._starting.free()
        if free is None or self._line is None or not accounts or draft.budget <= 0:
            return self._start_from(accounts, draft, now, is_trial=True)
        self._blocked, is_over = self._hopeless(self._line, draft, [], 0, free)
        return not is_over

    def _decides_alike(self, limits: SchedulerLimits) -> bool:
        """Whether who can't start beside decodes alone can't beside their next tokens either.

        These only take blocks. So it is, unless the order of those who wait changes with the tokens
        that others get or with time, or a class that reaches its share leaves slots to others, or a
        prompt of which less is in the cache by then lets others go first.
        """
        return (
            all(type(account.queue) is KeyQueue for account in self._accounts)
            and (len(self._accounts) == 1 or self._policies.compares_classes)
            and not self._policies.looks_at_time
            and not any(a.has_reservation or a.min_running for a in self._accounts)
            and not self._work.memory.has_shares
            and limits.enable_chunked_prefill
            and limits.max_partial_prefills is None
            and limits.max_long_partial_prefills is None
        )

    def _only_line(self) -> KeyQueue | None:
        if len(self._accounts) > 1 or self._policies.looks_at_time:
            return None
        queue = self._accounts[0].queue
        return queue if type(queue) is KeyQueue else None

    def _situation(self) -> tuple[int, ...]:
        """Return numbers one of which changes whenever anybody comes, starts, stops or ends."""
        counters = self._work.counters
        return (
            counters.submitted,
            counters.preemptions,
            len(self._work.running),
            sum(len(account.queue) for account in self._accounts),
        )

    def open_accounts(self, now: float) -> list[ClassAccount]:
        """Return the classes with work that is not held back; holds that are over end."""
        for account in self._accounts:
            account.has_share_full = False
        if any(len(account.hold) for account in self._accounts) and self._is_batch_full():
            for account in self._accounts:
                account.hold.release()
        return [account for account in self._accounts if self._is_open(account, now)]

    def run_reserved(self, draft: StepDraft, now: float) -> None:
        """Start the work of classes with reserved capacity, all of it: a token each at least."""
        while num_waiting := self.num_waiting_reserved:
            sequence = self._first([a for a in self._reserving if len(a.queue)])
            draft.withheld = num_waiting - 1
            if sequence is None or self._try(draft, sequence, [], now, None) is not Verdict.STARTED:
                break
        draft.withheld = 0

    @property
    def num_waiting_reserved(self) -> int:
        """Sequences that start in the next step, whatever else is in it."""
        return sum(len(account.queue) for account in self._reserving)

    def run_batch(self, draft: StepDraft, now: float) -> None:
        """Start a static batch, of all classes, when it is full or somebody's wait is over."""
        num_waiting = sum(len(account.queue) for account in self._accounts)
        is_full = num_waiting >= self._limits.max_num_seqs
        if not is_full and not any(self._is_open(account, now) for account in self._accounts):
            return
        for account in self._accounts:
            account.hold.release()
        self.run(draft, now)

    def first(self) -> Sequence | None:
        """Return who would go first now, holds aside."""
        return self._first([a for a in self._accounts if len(a.queue)])

    def is_first_blocked(self, account: ClassAccount | None = None) -> bool:
        """Whether who goes first, in all or in one class, lacks blocks: then slots help nobody."""
        sequence = self.first() if account is None else account.queue.peek()
        if sequence is None:
            return False
        return self._starting.lacks_blocks(sequence)

    def _is_batch_full(self) -> bool:
        """Whether as many wait, held or not, as there are slots for them; none at all is full."""
        slots = self._slots
        num_startable = sum(
            min(account.num_waiting_sequences, max(slots.free_for(account), 0))
            for account in self._accounts
            if account.num_waiting_sequences
        )
        return num_startable >= slots.num_free

    def _is_open(self, account: ClassAccount, now: float) -> bool:
        return len(account.queue) > 0 and account.hold.is_open(now, len(account.queue))

    def _start_from(
        self,
        accounts: list[ClassAccount],
        draft: StepDraft,
        now: float,
        ahead_of: Sequence | None = None,
        *,
        is_trial: bool = False,
    ) -> bool:
        """Try those who wait in their order, until the step is full.

        Returns whether anybody started; a trial ends with the first one who could.
        """
        has_started = False
        free = self._starting.free()
        line = None if ahead_of else self._line
        blocked: list[Sequence] = []
        held: list[Sequence] = []
        aside: list[Sequence] = []  # who is out of the queue for a moment
        num_demoted = 0
        while draft.budget > draft.withheld and len(blocked) + len(held) < _MAX_SKIPPED:
            if free is not None and line is not None and accounts:
                hopeless, is_over = self._hopeless(line, draft, blocked, len(held), free)
                blocked += hopeless
                if is_over:
                    break
                _put_aside(hopeless, aside)
            sequence = self._first(accounts)
            if sequence is None or (ahead_of and not self._policies.precedes(sequence, ahead_of)):
                break
            if self._policies.is_too_late(sequence, now):
                if num_demoted >= _MAX_DEMOTED and self._work.running:
                    break
                num_demoted += 1
                self._demote(sequence)
                continue
            verdict = self._try(draft, sequence, blocked, now, free, is_trial=is_trial)
            if verdict in (Verdict.BLOCKED, Verdict.HELD):
                (blocked if verdict is Verdict.BLOCKED else held).append(sequence)
                _put_aside([sequence], aside)
            elif verdict is Verdict.CLASS_FULL:
                accounts.remove(sequence.account)
            elif verdict is Verdict.STEP_FULL:
                break
            else:
                has_started = True
                if is_trial:
                    break
                free = self._starting.free()
        for sequence in aside:
            sequence.account.queue.put_back(sequence)
        self._blocked = blocked
        return has_started

    def _hopeless(
        self,
        line: KeyQueue,
        draft: StepDraft,
        blocked: list[Sequence],
        num_held: int,
        free: Free,
    ) -> tuple[list[Sequence], bool]:
        """Return who goes next and is *blocked* for sure, and whether nobody behind can start.

        It says what ``_try`` would say of each: most of those that are looked at in a pool that is
        full, in every step.
        """
        most = max([s.num_passed for s in blocked], default=-1)
        is_hopeless, limits = self._starting.is_hopeless, self._limits
        found: list[Sequence] = []
        for sequence in line.first(_MAX_SKIPPED - len(blocked) - num_held):
            if most >= limits.max_passes:
                return found, True
            if most >= 0 and sequence.num_preemptions >= limits.max_preemptions:
                return found, True
            if not is_hopeless(draft, sequence, free):
                return found, False
            found.append(sequence)
            if sequence.num_passed > most:
                most = sequence.num_passed
        return found, True

    def _first(self, accounts: list[ClassAccount]) -> Sequence | None:
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

    def _turn(self, head: Sequence) -> tuple[float, ...]:
        account = head.account
        by_keys = self._policies.compares_classes
        place = head.cross_key if by_keys else account.service.virtual
        return (not self._slots.is_entitled(account), place, head.sequence_id)

    def _demote(self, sequence: Sequence) -> None:
        queue = sequence.account.queue
        queue.remove(sequence)
        self._policies.demote(sequence)
        queue.put_back(sequence)

    # ---------------------------------------------------------------- who may pass

    def _try(
        self,
        draft: StepDraft,
        sequence: Sequence,
        blocked: list[Sequence],
        now: float,
        free: Free | None,
        *,
        is_trial: bool = False,
    ) -> Verdict:
        account = sequence.account
        if account.has_reservation:
            return self._starting.attempt(draft, sequence, (), now)
        passed = blocked
        if account.is_below_minimum and self._work.running:
            # its turn comes first, so it passes also whoever was blocked when last looked at
            before = (s for s in self._blocked if s.account is not account and s.is_waiting)
            passed = blocked + [s for s in before if s not in blocked]
        if passed and not self._may_pass(sequence, passed):
            return Verdict.CLASS_FULL if account.is_below_minimum else Verdict.STEP_FULL
        if free is not None and self._starting.is_hopeless(draft, sequence, free):
            return Verdict.BLOCKED
        if is_trial:
            return self._starting.foresee(draft, sequence)
        return self._starting.attempt(draft, sequence, tuple(passed), now)

    def _may_pass(self, sequence: Sequence, blocked: list[Sequence]) -> bool:
        """Whether everybody may be passed once more, by one that can give its blocks back.

        The members of a static batch can't, so there nobody is passed.
        """
        if self._limits.batching is Batching.STATIC:
            return False
        most = self._limits.max_passes
        can_give_back = sequence.num_preemptions < self._limits.max_preemptions
        return can_give_back and max([s.num_passed for s in blocked]) < most


def _put_aside(sequences: list[Sequence], aside: list[Sequence]) -> None:
    """Take sequences out of their queues for a moment."""
    for sequence in sequences:
        sequence.account.queue.remove(sequence)
    aside += sequences
