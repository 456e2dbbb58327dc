"""Whether a waiting sequence can start in a step, and its start: slot, blocks, first slice."""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum, auto
from typing import NamedTuple

from headway.core.chunking import Chunking
from headway.core.draft import StepDraft
from headway.core.events import PreemptionCause, Resumed, Started
from headway.core.lifecycle import Move, State
from headway.core.limits import Batching, SchedulerLimits
from headway.core.memory import Kept
from headway.core.preemption import Preemption
from headway.core.sequence import Sequence
from headway.core.slots import Slots
from headway.core.victims import Victims
from headway.core.work import Work

_Victims = list[tuple[Sequence, PreemptionCause]]


_MAX_SPARED = 8
"""For so many victims it is asked whether there is room without them."""


class Verdict(Enum):
    """What became of a sequence that went first."""

    STARTED = auto()
    BLOCKED = auto()  # lacks blocks: others may pass it, a bounded number of times
    HELD = auto()  # waits for work of its own kind to end: others go on
    CLASS_FULL = auto()  # its class has no slot, or all that it may have of blocks or tokens
    STEP_FULL = auto()  # nobody else starts in this step


class _Room(NamedTuple):
    """What a sequence can begin with, once these gave way."""

    kept: Kept
    victims: _Victims


class Free(NamedTuple):
    """Free blocks in a step, and those of them that nobody is owed and nothing keeps back."""

    num_blocks: int
    num_spare: int


class Starting:
    """Starts and resumes sequences, after preempting whom they displace."""

    def __init__(
        self,
        work: Work,
        limits: SchedulerLimits,
        slots: Slots,
        chunking: Chunking,
        victims: Victims,
        preemption: Preemption,
    ) -> None:
        self._work = work
        self._limits = limits
        self._slots = slots
        self._chunking = chunking
        self._victims = victims
        self._preemption = preemption
        self._is_padded = limits.batching is not Batching.CONTINUOUS
        self._is_plain = self._lets_all_alike(limits)

    def attempt(
        self, draft: StepDraft, sequence: Sequence, passed: tuple[Sequence, ...], now: float
    ) -> Verdict:
        """Start the sequence if it can, before those that it passes."""
        found = self._look(draft, sequence)
        if isinstance(found, Verdict):
            return found
        fitting = self._clear(draft, sequence, found, now)
        if fitting is None:
            return self._why_not(sequence, found.kept)
        count = self._chunking.length(draft, sequence, _num_lacking(sequence, fitting))
        if count == 0:  # what it would have shared went with whom it displaced
            return Verdict.STEP_FULL
        for head in passed:
            head.num_passed += 1
        sequence.lenders = passed
        self._start(draft, sequence, fitting, count, now)
        return Verdict.STARTED

    def foresee(self, draft: StepDraft, sequence: Sequence) -> Verdict:
        """Return what would become of an attempt, and change nothing; it may still fail."""
        found = self._look(draft, sequence)
        return found if isinstance(found, Verdict) else Verdict.STARTED

    def free(self) -> Free | None:
        """Return what blocks there are for those who wait; None if more than blocks decides."""
        if not self._is_plain or self._slots.num_free <= 0:
            return None
        work, num_free = self._work, self._work.memory.pool.num_free
        missing = work.memory.num_missing
        num_owed = sum([missing(s, s.num_known_positions) for s in work.prefilling.values()])
        num_kept = self._limits.watermark_blocks if work.running else 0
        return Free(num_free, num_free - num_owed - num_kept)

    def is_hopeless(self, draft: StepDraft, sequence: Sequence, free: Free) -> bool:
        """Whether it is *blocked* for sure, which takes no close look: it needs too many blocks."""
        if sequence.turn == draft.turn or sequence.swap_block_ids:
            return False
        memory = self._work.memory
        if sequence.num_preemptions and not memory.can_promise(sequence):
            return True
        num_new = memory.num_new_blocks(sequence)
        if not sequence.borrowers:
            return num_new > free.num_spare
        borrowed = sum([len(s.block_ids) for s in sequence.borrowers.values()])
        return num_new > free.num_blocks + borrowed

    def may_displace(self, sequence: Sequence, turn: int | None) -> bool:
        """Whether there may be somebody whose slot it can take."""
        return self._victims.may_exist(sequence, turn)

    def lacks_blocks(self, sequence: Sequence) -> bool:
        """Whether free slots don't help it."""
        return self._fitting(sequence, self._work.memory.kept_for(sequence)) is None

    def _lets_all_alike(self, limits: SchedulerLimits) -> bool:
        """Whether a free slot and some of the step's budget are all that one needs but blocks."""
        accounts = self._work.accounts.values()
        return (
            not self._is_padded
            and limits.enable_chunked_prefill
            and limits.max_partial_prefills is None
            and limits.max_long_partial_prefills is None
            and not self._victims.looks_at_priority
            and not self._work.memory.has_shares
            and not any(
                a.has_reservation or a.min_running or a.settings.best_effort for a in accounts
            )
        )

    # ---------------------------------------------------------------- room in the step

    def _look(self, draft: StepDraft, sequence: Sequence) -> _Room | Verdict:
        """Find room for a sequence, or say why there is none."""
        if sequence.turn == draft.turn:  # it was preempted in this very step
            return Verdict.STEP_FULL
        has_slot = self._slots.free_for(sequence.account) > 0
        if not has_slot and not self._victims.may_exist(sequence, draft.turn):
            return Verdict.CLASS_FULL
        kept = self._work.memory.kept_for(sequence)
        obstacle = self._obstacle(draft, sequence, kept)
        if obstacle is not None:
            return obstacle
        fitting = self._fitting(sequence, kept) if has_slot else None
        if fitting is not None:
            return _Room(fitting, [])
        victims = self._victims_of(sequence, kept, draft.turn)
        if victims and self._would_fit(sequence, [victim for victim, _ in victims]):
            return _Room(kept, victims)
        return self._why_not(sequence, kept)

    def _obstacle(self, draft: StepDraft, sequence: Sequence, kept: Kept) -> Verdict | None:
        """Say what of the step is lacking, before anybody is preempted for it."""
        remaining = _num_lacking(sequence, kept)
        if remaining == 0:  # it was swapped out while its token was being sampled
            return Verdict.STEP_FULL
        count = self._chunking.length(draft, sequence, remaining)
        if count == 0:
            is_step_full = self._chunking.is_step_full(draft, remaining)
            return Verdict.STEP_FULL if is_step_full else Verdict.CLASS_FULL
        if sequence.account.has_reservation:
            return None
        may_begin = self._chunking.may_begin(draft, remaining, count)
        if not may_begin or self._work.memory.must_wait_for_promise(sequence):
            return Verdict.HELD
        return None

    # ---------------------------------------------------------------- slot and blocks

    def _clear(self, draft: StepDraft, sequence: Sequence, room: _Room, now: float) -> Kept | None:
        """Preempt whom the sequence displaces, if anybody; return what it begins with.

        Nobody is preempted in vain: only if that gives it both a slot and its blocks.
        """
        if not room.victims:
            return room.kept
        for victim, cause in self._needed(sequence, room.victims):
            self._preemption.preempt(draft, victim, cause, now)
        return self._fitting_with_slot(sequence, self._work.memory.kept_for(sequence))

    def _needed(self, sequence: Sequence, victims: _Victims) -> _Victims:
        """Return the first victims that make room, less those without whom there is room too."""

        def is_enough(some: _Victims) -> bool:
            return self._would_fit(sequence, [victim for victim, _ in some])

        number = bisect_left(range(len(victims)), True, lo=1, key=lambda n: is_enough(victims[:n]))
        chosen = victims[:number]
        for found in chosen[:_MAX_SPARED]:
            others = [other for other in chosen if other is not found]
            if is_enough(others):
                chosen = others
        return chosen

    def _victims_of(self, sequence: Sequence, kept: Kept, turn: int) -> _Victims:
        """Return whom it may displace; at its share a class gains only by its own sequences."""
        account = sequence.account
        victims = self._victims.for_start(sequence, turn)
        if not victims:
            return []
        is_at_share = account.num_running >= account.max_running or not self._is_within_share(
            sequence, kept
        )
        return [found for found in victims if not is_at_share or found[0].account is account]

    def _fitting_with_slot(self, sequence: Sequence, kept: Kept) -> Kept | None:
        if self._slots.free_for(sequence.account) <= 0:
            return None
        return self._fitting(sequence, kept)

    def _fitting(self, sequence: Sequence, kept: Kept) -> Kept | None:
        """Return what it can begin with in the free blocks; a copied block is given up for it."""
        if not self._is_within_share(sequence, kept):
            return None
        work = self._work
        num_owed = work.memory.num_owed(work.prefilling.values(), sequence.account)
        choices = [kept] if kept.partial_block is None else [kept, kept.without_partial()]
        for choice in choices:
            if work.memory.fits(sequence, choice, num_owed, is_alone=not work.running):
                return choice
        return None

    def _is_within_share(self, sequence: Sequence, kept: Kept) -> bool:
        work = self._work
        return work.memory.is_within_share(sequence, kept, work.prefilling.values())

    def _would_fit(self, sequence: Sequence, victims: list[Sequence]) -> bool:
        """Whether it would have a place if all victims left; what they share with it goes too."""
        if self._slots.free_for(sequence.account, victims) <= 0:
            return False
        memory = self._work.memory
        kept = memory.kept_for(sequence, leaving=victims).without_partial()
        leaving = {s.sequence_id for s in victims}
        staying = [s for i, s in self._work.prefilling.items() if i not in leaving]
        num_owed = memory.num_owed(staying, sequence.account)
        is_alone = len(victims) == len(self._work.running)
        return memory.is_within_share(sequence, kept, staying, victims) and memory.fits(
            sequence, kept, num_owed, is_alone=is_alone, leaving=victims
        )

    def _why_not(self, sequence: Sequence, kept: Kept) -> Verdict:
        account = sequence.account
        account.has_share_full = not self._is_within_share(sequence, kept)
        has_slot = self._slots.free_for(account) > 0
        is_blocked = has_slot and not account.has_share_full
        return Verdict.BLOCKED if is_blocked else Verdict.CLASS_FULL

    # ---------------------------------------------------------------- its start

    def _start(
        self, draft: StepDraft, sequence: Sequence, kept: Kept, count: int, now: float
    ) -> None:
        account = sequence.account
        account.queue.take(sequence)
        account.hold.discard(sequence.sequence_id)
        self._work.enter(sequence)
        sequence.turn = draft.turn
        if self._is_padded:  # how much each member gets is known when all have joined
            count = 0
        self._take_kept(draft, sequence, kept, kept.num_positions + count)
        sequence.num_charged_tokens = max(sequence.num_charged_tokens, kept.num_positions)
        if count:
            draft.add(sequence, count)
        if sequence.state is State.PREEMPTED:
            self._resume(sequence, kept, now)
        else:
            self._start_first(sequence, kept, now)

    def _take_kept(
        self, draft: StepDraft, sequence: Sequence, kept: Kept, num_positions: int
    ) -> None:
        memory = self._work.memory
        if sequence.swap_block_ids:
            draft.freed_swap_blocks += sequence.swap_block_ids
            draft.swap_in += memory.swap_in(sequence, num_positions)
        else:
            draft.copies += memory.begin(sequence, kept, num_positions)

    def _resume(self, sequence: Sequence, kept: Kept, now: float) -> None:
        sequence.move(Move.RESUME, now)
        self._work.num_preempted -= 1
        self._work.counters.resumed += 1
        event = Resumed(sequence.request_id, sequence.index, kept.num_positions)
        self._work.events.append(event)

    def _start_first(self, sequence: Sequence, kept: Kept, now: float) -> None:
        live, account = sequence.parent, sequence.account
        if live.state is State.WAITING:
            self._work.num_waiting -= 1
            live.move(Move.START, now)
        sequence.move(Move.START, now)
        account.num_waiting_sequences -= 1
        account.num_waiting_tokens -= sequence.num_prompt_tokens
        self._work.last_account = account
        self._work.memory.num_cached_tokens += kept.num_positions
        self._work.events.append(
            Started(
                sequence.request_id,
                sequence.index,
                now - live.submitted_at,
                sequence.num_passed,
                kept.num_positions,
            )
        )


def _num_lacking(sequence: Sequence, kept: Kept) -> int:
    return sequence.num_known_positions - kept.num_positions
