"""Static and dynamic batching: a step computes as much for each member as for its longest.

A step is either a prefill step, which computes prompts and lets decodes wait, or a decode step.
"""

from __future__ import annotations

from headway.core.admission import Admission
from headway.core.draft import StepDraft
from headway.core.growth import Growth
from headway.core.lifecycle import State
from headway.core.limits import Batching, SchedulerLimits
from headway.core.plan import Padding
from headway.core.sequence import Sequence
from headway.core.turns import Turns
from headway.core.work import Work

_MAX_PREFILLS = 4
"""So many prefill steps follow each other at most, with dynamic batching, while others decode."""


class PaddedPlanner:
    """Fills a draft with one padded step."""

    def __init__(
        self,
        work: Work,
        limits: SchedulerLimits,
        growth: Growth,
        turns: Turns,
        admission: Admission,
    ) -> None:
        self._work = work
        self._limits = limits
        self._growth = growth
        self._turns = turns
        self._admission = admission
        self._is_static = limits.batching is Batching.STATIC
        self._num_prefills = 0  # in a row, while others wait to decode

    def plan(self, draft: StepDraft, now: float) -> None:
        """Choose the slices of the next step."""
        if self._decodes_are_due():
            self._turns.open_accounts(now)  # holds end all the same
            self._growth.plan_decodes(draft, now)
        if draft.is_empty:
            self._admit(draft, now)
            self._plan_step(draft, now)
        if not draft.is_empty:
            draft.padding = self._padding(draft)
        is_kept_waiting = len(self._work.decoding) > 0 and not draft.decodes
        self._num_prefills = self._num_prefills + 1 if is_kept_waiting else 0

    def _decodes_are_due(self) -> bool:
        """Whether prefill steps have kept decodes waiting long enough."""
        work, reserved = self._work, self._turns.num_waiting_reserved
        is_due = self._num_prefills >= _MAX_PREFILLS and len(work.decoding) > 0
        return is_due and not self._is_static and reserved == 0

    def _admit(self, draft: StepDraft, now: float) -> None:
        if not self._is_static:
            self._admission.run_reserved(draft, now)
            self._admission.run(draft, now)
        elif not self._work.running:
            self._admission.run_batch(draft, now)

    def _plan_step(self, draft: StepDraft, now: float) -> None:
        prefilling = [s for s in self._work.prefilling.values() if s.num_remaining_tokens > 0]
        # who lacks one token is computed like a decode
        is_prefill_step = any(s.num_remaining_tokens > 1 for s in prefilling)
        self._plan_prefill(draft, prefilling, now)
        if not is_prefill_step or draft.is_empty:  # or all of them gave way
            self._growth.plan_decodes(draft, now)

    def _plan_prefill(self, draft: StepDraft, prefilling: list[Sequence], now: float) -> None:
        rows = self._num_rows(prefilling) if prefilling else 0
        for sequence in prefilling:
            count = min(sequence.num_remaining_tokens, rows)
            is_running = sequence.state is State.RUNNING  # unless it gave blocks to another
            if is_running and self._growth.grow(draft, sequence, count, now):
                draft.add(sequence, count)

    def _num_rows(self, prefilling: list[Sequence]) -> int:
        limits = self._limits
        longest = max(s.num_remaining_tokens for s in prefilling)
        if not limits.enable_chunked_prefill:
            return longest
        room = limits.max_num_batched_tokens // self._num_sequences(len(prefilling))
        return min(longest, room, limits.max_prefill_chunk_tokens or room)

    def _num_sequences(self, num_slices: int) -> int:
        """Return how many sequences are computed: in a static batch all, the ended ones too."""
        if not self._is_static:
            return num_slices
        return len(self._work.running) + self._work.num_ghosts

    def _padding(self, draft: StepDraft) -> Padding:
        chunks = draft.chunks.values()
        rows = max((count for _, count in chunks), default=1)
        ends = [s.num_scheduled_tokens + count for s, count in chunks]
        ends += [s.num_scheduled_tokens + 1 for s in draft.decodes]
        num_slices = len(draft.chunks) + len(draft.decodes)
        return Padding(self._num_sequences(num_slices), rows, max(ends))
