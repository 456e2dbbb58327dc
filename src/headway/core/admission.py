"""Starts and resumes waiting sequences in their turns: who may pass, who must wait.

A sequence that goes first but lacks blocks is *blocked*. Others may start before it a bounded
number of times, on blocks *borrowed* from it: they are preempted as soon as it can start with
these, so it never starts later than it would have without them.
"""

from __future__ import annotations

from headway.core.accounts import ClassAccount
from headway.core.draft import StepDraft
from headway.core.limits import Batching, SchedulerLimits
from headway.core.policy import Policies
from headway.core.queues import KeyQueue
from headway.core.sequence import Sequence
from headway.core.slots import Slots
from headway.core.standstill import Standstill
from headway.core.starting import Free, Starting, Verdict
from headway.core.turns import Turns
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
        turns: Turns,
        starting: Starting,
    ) -> None:
        self._work = work
        self._limits = limits
        self._policies = policies
        self._slots = slots
        self._turns = turns
        self._starting = starting
        self._blocked: list[Sequence] = []  # who lacked blocks when last looked at
        self._standstill = Standstill(work, limits, policies, turns)

    # ---------------------------------------------------------------- a step

    def run(self, draft: StepDraft, now: float, ahead_of: Sequence | None = None) -> None:
        """Start waiting sequences while slots, budget and blocks last.

        With ``ahead_of`` only those start that go before that running prefill.
        A step that had to preempt admits nobody: the blocks are needed by those who run.
        """
        accounts = self._turns.open_accounts(now)
        if draft.has_preempted or not self._is_worth_while(accounts, draft.turn):
            return
        self._start_from(accounts, draft, now, ahead_of)
        if self._standstill.may_last and ahead_of is None:
            if draft.chunks:
                self._standstill.end()
            else:
                self._standstill.begin()

    def rest(self) -> None:
        """Do as ``run`` does when nobody waits."""
        self._turns.reopen_shares()
        if self._slots.num_free > 0:
            self._blocked = []
            self._standstill.end()

    def run_reserved(self, draft: StepDraft, now: float) -> None:
        """Start the work of classes with reserved capacity, all of it: a token each at least."""
        while num_waiting := self._turns.num_waiting_reserved:
            sequence = self._turns.first_reserved()
            draft.withheld = num_waiting - 1
            if sequence is None or self._try(draft, sequence, [], now, None) is not Verdict.STARTED:
                break
        draft.withheld = 0

    def run_batch(self, draft: StepDraft, now: float) -> None:
        """Start a static batch, of all classes, when it is full or somebody's wait is over."""
        if self._turns.open_batch(self._limits.max_num_seqs, now):
            self.run(draft, now)

    def is_first_blocked(self, account: ClassAccount | None = None) -> bool:
        """Whether who goes first, in all or in one class, lacks blocks: then slots help nobody."""
        sequence = self._turns.first() if account is None else account.queue.peek()
        if sequence is None:
            return False
        return self._starting.lacks_blocks(sequence)

    def _is_worth_while(self, accounts: list[ClassAccount], turn: int | None) -> bool:
        """Whether a slot is free, or somebody may be displaced; else nobody need be asked."""
        if self._slots.num_free > 0:
            return True
        heads = (account.queue.peek() for account in accounts)
        return any(head and self._starting.may_displace(head, turn) for head in heads)

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
        line = None if ahead_of else self._turns.line
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
            sequence = self._turns.first_of(accounts)
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

    def _demote(self, sequence: Sequence) -> None:
        queue = sequence.account.queue
        queue.remove(sequence)
        self._policies.demote(sequence)
        queue.put_back(sequence)

    # ---------------------------------------------------------------- whether anybody would start

    def starts_nobody(self, now: float) -> bool:
        """Whether ``run`` would start nobody, until somebody comes or leaves; between two turns.

        If so this is as good as a run.
        """
        if self._turns.is_held:
            return False
        if self._standstill.lasts:
            return True
        is_waited_for = self._turns.is_waited_for
        if is_waited_for and self._standstill.may_last:
            return self._would_start_nobody(now)
        if is_waited_for and (self._slots.num_free > 0 or self._turns.num_waiting_reserved):
            return False
        if any(self._starting.may_displace(s, None) for s in self._turns.next_heads()):
            return False
        if self._is_worth_while(self._turns.open_accounts(now), None):
            if is_waited_for:
                return False
            self._blocked = []
        return True

    def _would_start_nobody(self, now: float) -> bool:
        """Whether a run beside decodes alone would start nobody; it is tried, and nothing done."""
        accounts, counters = self._turns.open_accounts(now), self._work.counters
        draft = StepDraft(counters.steps, counters.turns + 1, self._limits.max_num_batched_tokens)
        draft.budget -= len(self._work.decoding)
        if self._is_worth_while(accounts, draft.turn):
            if self._might_start(accounts, draft, now):
                return False
            self._standstill.begin()
        return True

    def _might_start(self, accounts: list[ClassAccount], draft: StepDraft, now: float) -> bool:
        """Whether anybody can start, or can for all that is known without a close look."""
        free = self._starting.free()
        if free is None or self._turns.line is None or not accounts or draft.budget <= 0:
            return self._start_from(accounts, draft, now, is_trial=True)
        self._blocked, is_over = self._hopeless(self._turns.line, draft, [], 0, free)
        return not is_over

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
