"""The scheduler's settings, and the one place that says whether a request can ever finish."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.events import Rejected, RejectReason
from headway.core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Settings of a scheduler.

    Attributes:
        num_blocks: blocks in the KV pool.
        block_size: positions in a block.
        max_model_len: prompt plus output tokens of a sequence, at most.
        max_num_seqs: sequences that run at once.
        max_num_batched_tokens: token budget of a step.
        max_prefill_chunk_tokens: the longest slice of a step; None leaves it to the budget.
        enable_chunked_prefill: without it a prompt is computed in one step, or not yet.
        max_queue_requests: sequences that may wait beyond those that free slots could take; while
            the first of them waits for blocks, free slots count for nothing.
        max_queue_tokens: prompt tokens that may wait; one request may always wait.
        watermark_blocks: blocks kept free when admitting, so that running work can grow.
        max_plans_in_flight: plans made before the result of the first is known; 1 or 2.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_chunk_tokens: int | None = None
    enable_chunked_prefill: bool = True
    max_queue_requests: int | None = None
    max_queue_tokens: int | None = None
    watermark_blocks: int = 0
    max_plans_in_flight: int = 1

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_model_len", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}), or some running sequences never decode"
            )
        if self.max_prefill_chunk_tokens is not None and self.max_prefill_chunk_tokens < 1:
            raise ValueError("max_prefill_chunk_tokens must be at least 1")
        if not self.enable_chunked_prefill:
            self._check_whole_prompts()
        if self.max_plans_in_flight not in (1, 2):
            raise ValueError("max_plans_in_flight must be 1 or 2")

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

    def refusal(self, request: Request) -> Rejected | None:
        """Say why the request can never finish, with the numbers; None if it can."""
        flaw = _flaw(request)
        if flaw is not None:
            return Rejected(request.request_id, RejectReason.INVALID, flaw)
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
        if num_positions > self.num_kv_tokens:
            return Rejected(
                request.request_id,
                RejectReason.KV_CAPACITY,
                f"The request needs KV for {num_positions} tokens ({num_prompt} in the prompt, "
                f"{request.sampling.max_tokens} for the output), but the whole pool holds "
                f"{self.num_kv_tokens} ({self.num_blocks} blocks of {self.block_size}).",
            )
        return None


def _flaw(request: Request) -> str | None:
    """Return what is wrong with the request in itself."""
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
