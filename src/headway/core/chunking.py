"""How many tokens of a step a prefill gets."""

from __future__ import annotations

from headway.core.classes import PolicyName
from headway.core.config import SchedulerConfig
from headway.core.costs import LearnedCosts, StepFeatures
from headway.core.draft import StepDraft
from headway.core.limits import Batching
from headway.core.sequence import Sequence
from headway.core.work import Work

_LEAST_CHUNK = 16
"""With ``slo``, prefills get so many tokens a step at least, or they would never end."""


class Chunking:
    """Sizes of slices, and the limits on prefills in parts."""

    def __init__(self, config: SchedulerConfig, work: Work, costs: LearnedCosts) -> None:
        self._limits = config.limits
        self._is_padded = config.limits.batching is not Batching.CONTINUOUS
        self._is_slo = config.policy.name is PolicyName.SLO
        self._work = work
        self._costs = costs

    def length(self, draft: StepDraft, sequence: Sequence, remaining: int) -> int:
        """Return how many of ``remaining`` tokens fit into the step; 0 is "not in this step"."""
        if self._is_padded:
            return self._padded_length(remaining)
        account = sequence.account
        used = draft.class_tokens(account)
        room = min(
            draft.budget - draft.withheld, account.max_step_tokens - account.num_decoding - used
        )
        if not self._limits.enable_chunked_prefill:
            if used == 0:  # one prompt of the class may always be computed, however long
                room = draft.budget
            return remaining if remaining <= room else 0
        longest = self._limits.max_prefill_chunk_tokens or room
        return max(min(remaining, room, longest), 0)

    def _padded_length(self, remaining: int) -> int:
        """Return what a sequence would get beside all others that prefill, padding included."""
        limits, prefilling = self._limits, self._work.prefilling.values()
        room = limits.max_num_batched_tokens // (len(prefilling) + 1)
        if limits.enable_chunked_prefill:
            return min(remaining, room)
        longest = max((s.num_remaining_tokens for s in prefilling), default=0)
        return remaining if max(longest, remaining) <= room else 0

    def is_step_full(self, draft: StepDraft, remaining: int) -> bool:
        """Whether the step, and not the share of a class, has no room for so many tokens."""
        if self._is_padded:
            return True
        least = 1 if self._limits.enable_chunked_prefill else remaining
        return draft.budget - draft.withheld < least

    def is_long(self, remaining: int) -> bool:
        """Whether so many tokens make a long prefill."""
        threshold = self._limits.long_prefill_threshold_tokens
        return threshold is not None and remaining > threshold

    def may_begin(self, draft: StepDraft, remaining: int, count: int) -> bool:
        """Whether the limits on prefills in parts let another one begin."""
        limits = self._limits
        most = limits.max_partial_prefills
        if most is not None and count < remaining and self._num_partial(draft) >= most:
            return False
        most = limits.max_long_partial_prefills
        return most is None or not self.is_long(remaining) or self._num_long() < most

    def protect_decodes(self, draft: StepDraft, now: float) -> None:
        """With ``slo``: leave so much of the budget that no running sequence misses its target."""
        if not self._is_slo or not self._limits.enable_chunked_prefill or not draft.decodes:
            return
        work = self._work
        if not work.prefilling and len(work.running) >= self._limits.max_num_seqs:
            return  # there is nothing to prefill
        least = self._costs.seconds(StepFeatures(0, len(draft.decodes)))
        num_behind = work.lockstep.num_behind
        seconds = min(
            [_time_for_token(s, s.num_tokens + num_behind(s), least, now) for s in draft.decodes]
        )
        if seconds < _FOREVER:
            most = self._costs.prefill_tokens_within(seconds, len(draft.decodes))
            draft.budget = min(draft.budget, max(most, _LEAST_CHUNK))

    def _num_partial(self, draft: StepDraft) -> int:
        """Return how many prefills will stand half done after this step."""
        chunks = draft.chunks
        num_partial = 0
        for sequence_id, sequence in self._work.prefilling.items():
            count = chunks[sequence_id][1] if sequence_id in chunks else 0
            num_partial += count < sequence.num_remaining_tokens
        return num_partial

    def _num_long(self) -> int:
        return sum(self.is_long(s.num_remaining_tokens) for s in self._work.prefilling.values())


_FOREVER = float("inf")
_PRUDENCE = 0.95


def _time_for_token(sequence: Sequence, num_tokens: int, least: float, now: float) -> float:
    """Return how long the step may take that gives a decoding sequence of so many its next token.

    A step within the target is always right; beyond it the sequence spends what it is ahead by.
    A target that even a step without any prefill, of ``least`` seconds, would miss binds nobody.
    """
    target = sequence.account.settings.tpot_target_s
    if target is None or sequence.first_token_at is None:
        return _FOREVER
    target *= _PRUDENCE  # the time of a step is predicted, not known
    if target <= least:
        return _FOREVER
    num_outputs = num_tokens - sequence.num_prompt_tokens
    return max(target, sequence.first_token_at + num_outputs * target - now)
