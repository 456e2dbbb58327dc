"""The scheduler's settings, and the one place that says whether a request can ever finish."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from headway.core.events import Rejected, RejectReason
from headway.core.request import Request


class Batching(StrEnum):
    """How batches form."""

    #: a batch forms when it is full or the wait is over; nobody joins; slots last until all end
    STATIC = "static"
    #: sequences join and leave at every step, and each step is padded to its longest member
    DYNAMIC = "dynamic"
    #: formed anew at every step, without padding
    CONTINUOUS = "continuous"


class VictimChoice(StrEnum):
    """Who of several juniors gives way to a sequence that needs blocks."""

    #: who loses least: the fewest positions are computed again
    LEAST_LOST = "least_lost"
    #: the most junior one: the fewest are preempted, since who goes had come last
    NEWEST = "newest"


class PreemptionChoice(StrEnum):
    """How preempted sequences keep, or lose, their KV."""

    RECOMPUTE = "recompute"
    SWAP = "swap"
    AUTO = "auto"  # the cheaper one, by the step costs


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What a scheduler may hand out, and how much of it to whom at once.

    Attributes:
        num_blocks: blocks in the KV pool.
        block_size: positions in a block.
        max_model_len: prompt plus output tokens of a sequence, at most.
        max_num_seqs: sequences that run at once.
        max_num_batched_tokens: token budget of a step; in the padded modes padding counts.
        batching: how batches form.
        max_waiting_time_s: how long new work may be held back for a batch to fill.
        max_prefill_chunk_tokens: the longest slice of a step; None leaves it to the budget.
        enable_chunked_prefill: without it a prompt is computed in one step, or not yet.
        max_partial_prefills: sequences whose prompt is computed in part, at most; None is any.
        long_prefill_threshold_tokens: more than this many tokens to prefill are *long*. Short
            prefills and new work then go before long ones that run, which keep half of what the
            decodes leave.
        max_long_partial_prefills: long prefills that run at once; the others let short ones pass.
        max_queue_requests: sequences that may wait beyond those that free slots could take; while
            the first of them waits for blocks, free slots count for nothing. If nothing waits, a
            request may wait whole, however many sequences it has, unless this is 0.
        max_queue_tokens: prompt tokens that may wait; one request may always wait.
        max_passes: how many sequences may start before one that goes first but lacks blocks. They
            run on borrowed blocks, and give them back as soon as it can start. So nobody passes
            into a static batch, or after it was preempted ``max_preemptions`` times; once the
            number is reached, all classes wait.
        watermark_blocks: blocks kept free when admitting, so that running work can grow.
        enable_prefix_sharing: sequences with equal beginnings share their blocks.
        num_swap_blocks: blocks of the swap space; 0 is none.
        preemption_victim: who of those that may be displaced goes first.
        preemption_mode: what happens to the KV of preempted sequences.
        max_preemptions: after so many a sequence resumes only with all blocks that it can ever need
            set aside for it, and is preempted no more.
        max_plans_in_flight: plans made before the result of the first is known; 1 or 2.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    batching: Batching = Batching.CONTINUOUS
    max_waiting_time_s: float = 0.0
    max_prefill_chunk_tokens: int | None = None
    enable_chunked_prefill: bool = True
    max_partial_prefills: int | None = None
    long_prefill_threshold_tokens: int | None = None
    max_long_partial_prefills: int | None = None
    max_queue_requests: int | None = None
    max_queue_tokens: int | None = None
    max_passes: int = 16
    watermark_blocks: int = 0
    enable_prefix_sharing: bool = False
    num_swap_blocks: int = 0
    preemption_victim: VictimChoice = VictimChoice.LEAST_LOST
    preemption_mode: PreemptionChoice = PreemptionChoice.RECOMPUTE
    max_preemptions: int = 3
    max_plans_in_flight: int = 1

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number from 0 on, not {value}")
        if self.max_plans_in_flight not in (1, 2):
            raise ValueError("max_plans_in_flight must be 1 or 2")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}), or some running sequences never decode"
            )
        if not self.enable_chunked_prefill:
            self._check_whole_prompts()
        self._check_pairs()

    def _check_pairs(self) -> None:
        has_threshold = self.long_prefill_threshold_tokens is not None
        if self.max_long_partial_prefills is not None and not has_threshold:
            raise ValueError(
                "max_long_partial_prefills needs long_prefill_threshold_tokens, which says what "
                "is long"
            )
        if self.preemption_mode is PreemptionChoice.SWAP and self.num_swap_blocks == 0:
            raise ValueError("preemption_mode swap needs a swap space, and num_swap_blocks is 0")
        if self.watermark_blocks > self.num_blocks:
            raise ValueError(
                f"watermark_blocks ({self.watermark_blocks}) is more than the pool has "
                f"({self.num_blocks})"
            )

    def _check_whole_prompts(self) -> None:
        if self.max_num_batched_tokens < self.longest:
            raise ValueError(
                f"without chunked prefill max_num_batched_tokens ({self.max_num_batched_tokens}) "
                f"must hold the longest sequence ({self.longest} tokens)"
            )
        if self.max_prefill_chunk_tokens is not None:
            raise ValueError("max_prefill_chunk_tokens contradicts enable_chunked_prefill = false")

    @property
    def num_kv_tokens(self) -> int:
        """Positions in the whole pool."""
        return self.num_blocks * self.block_size

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that can finish: context or pool, the smaller.

        The last output token needs no KV, so a sequence may be one token longer than the pool.
        """
        return min(self.max_model_len, self.num_kv_tokens + 1)

    def refusal(self, request: Request, num_blocks: int | None = None) -> Rejected | None:
        """Say why the request can never finish, with the numbers; None if it can.

        ``num_blocks`` is how many of the pool's blocks its class may ever have; None is all.
        """
        num_prompt = len(request.prompt_token_ids)
        num_total = num_prompt + request.sampling.max_tokens
        if num_total > self.max_model_len:
            return Rejected(
                request.request_id,
                RejectReason.CONTEXT_LENGTH,
                f"This model's maximum context length is {self.max_model_len} tokens. However, "
                f"you requested {num_total} tokens ({num_prompt} in the prompt, "
                f"{request.sampling.max_tokens} for the output).",
            )
        num_positions = max(num_total - 1, num_prompt)
        num_blocks = self.num_blocks if num_blocks is None else num_blocks
        num_kv_tokens = num_blocks * self.block_size
        if num_positions > num_kv_tokens:
            whose = "whole pool" if num_blocks == self.num_blocks else "part open to its class"
            return Rejected(
                request.request_id,
                RejectReason.KV_CAPACITY,
                f"The request needs KV for {num_positions} tokens ({num_prompt} in the prompt, "
                f"{request.sampling.max_tokens} for the output), but the {whose} holds "
                f"{num_kv_tokens} ({num_blocks} blocks of {self.block_size}).",
            )
        return None


_AT_LEAST_ONE = (
    "num_blocks",
    "block_size",
    "max_model_len",
    "max_num_seqs",
    "max_prefill_chunk_tokens",
    "max_partial_prefills",
    "max_long_partial_prefills",
    "long_prefill_threshold_tokens",
    "max_queue_tokens",
)
_NOT_NEGATIVE = (
    "max_waiting_time_s",
    "max_passes",
    "num_swap_blocks",
    "max_preemptions",
    "max_queue_requests",
    "watermark_blocks",
)


def flaw_of(request: Request) -> str | None:
    """Return what is wrong with a request in itself."""
    sampling = request.sampling
    if not request.prompt_token_ids:
        return "The prompt is empty: it must hold at least one token."
    if request.n < 1:
        return f"n must be at least 1, not {request.n}."
    if not 0 <= sampling.min_tokens <= sampling.max_tokens:
        return (
            f"min_tokens ({sampling.min_tokens}) must lie between 0 and "
            f"max_tokens ({sampling.max_tokens})."
        )
    return None
