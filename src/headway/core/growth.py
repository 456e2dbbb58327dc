"""Gives running sequences the blocks for their next positions, by preemption if need be."""

from __future__ import annotations

from headway.core.draft import StepDraft
from headway.core.events import PreemptionCause
from headway.core.lifecycle import State
from headway.core.preemption import Preemption
from headway.core.sequence import Sequence
from headway.core.victims import Victims
from headway.core.work import Work


class Growth:
    """Block-wise growth: a sequence takes a block when it needs its first position."""

    def __init__(self, work: Work, victims: Victims, preemption: Preemption) -> None:
        self._work = work
        self._victims = victims
        self._preemption = preemption

    def plan_decodes(self, draft: StepDraft, now: float) -> None:
        """Plan one position for each decoding sequence, the senior ones first to take blocks."""
        decoding, lockstep = list(self._work.decoding.values()), self._work.lockstep
        if lockstep.members:
            full = short = lockstep.pass_due()
        else:
            full = [s for s in decoding if s.num_scheduled_tokens >= s.num_held_positions]
            # of those that have all blocks that they can need the last token is being sampled
            short = [s for s in full if s.num_scheduled_tokens < s.max_positions]
        if not full:
            draft.add_decodes(decoding)
            return
        if len(short) == len(full) and self._work.memory.extend_all(short):
            draft.add_decodes(decoding)
            draft.grown += short
            return
        lacking = set(full)
        draft.add_decodes([s for s in decoding if s not in lacking])
        short.sort(key=_by_seniority)
        for sequence in short:
            if sequence.state is State.RUNNING and self.grow(draft, sequence, 1, now):
                draft.add_decodes([sequence])
                draft.grown.append(sequence)
            else:
                lockstep.leave(sequence)

    def grow(self, draft: StepDraft, sequence: Sequence, count: int, now: float) -> bool:
        """Get blocks for the next ``count`` positions.

        Returns False when the sequence itself had to give way, or must wait for the next step.
        """
        memory = self._work.memory
        start = sequence.num_scheduled_tokens + self._work.lockstep.num_behind(sequence)
        end = start + count
        missing = memory.num_missing(sequence, end)
        while missing:
            is_own_class = memory.exceeds_share(sequence, missing)
            if not is_own_class and missing <= memory.available_to(sequence):
                break
            victim = self._victims.for_growth(sequence, draft.turn, is_own_class)
            if victim is None and sequence.is_promised:
                return False  # what was promised is held by work that started just now
            victim = victim or sequence
            self._preemption.preempt(draft, victim, PreemptionCause.BLOCKS, now)
            if victim is sequence:
                return False
        memory.extend(sequence, end)
        return True


def _by_seniority(sequence: Sequence) -> tuple[float, ...]:
    return sequence.seniority
