"""What the scheduler tells the front end. Frozen values, named in the past tense.

Each request ends in exactly one *terminal* event: Rejected, Finished, Failed, Cancelled or Expired.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headway.core.plan import PromptLogprobs, RequestId, SampledToken, SequenceId


class FinishReason(StrEnum):
    """Why a sequence ended well."""

    STOP = "stop"  # a stop token was drawn, or the text layer found a stop string
    LENGTH = "length"  # max_tokens are out


class RejectReason(StrEnum):
    """Why a request was refused at submission."""

    CONTEXT_LENGTH = "context_length_exceeded"  # prompt or prompt + max_tokens beyond the context
    KV_CAPACITY = "kv_capacity_exceeded"  # could never fit into the block pool
    QUEUE_FULL = "queue_full"
    RESERVED_FULL = "reserved_capacity_full"  # its class never queues, and has no room now
    DUPLICATE = "duplicate_request_id"
    INVALID = "invalid_request"


class ExpireReason(StrEnum):
    """Which deadline passed."""

    QUEUE_TIMEOUT = "queue_timeout"
    REQUEST_TIMEOUT = "request_timeout"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request is queued; ``sequence_ids[i]`` is its i-th sequence.

    ``clamped_max_tokens`` is set if its class allows fewer output tokens than it asked for.
    """

    request_id: RequestId
    sequence_ids: tuple[SequenceId, ...]
    clamped_max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Terminal. ``message`` has the numbers; ``retry_after_s`` is set when waiting can help."""

    request_id: RequestId
    reason: RejectReason
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A sequence runs for the first time, after ``queued_s`` in the queue.

    ``num_passed`` sequences that stood behind it went first. The KV of ``num_cached_tokens`` prompt
    tokens was there already.
    """

    request_id: RequestId
    index: int
    queued_s: float
    num_passed: int = 0
    num_cached_tokens: int = 0


class PreemptionMode(StrEnum):
    """How a preempted sequence comes back."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class PreemptionCause(StrEnum):
    """For whom a sequence was preempted."""

    BLOCKS = "blocks"  # a running sequence that goes before it had to grow
    PRIORITY = "priority"  # a waiting sequence of higher priority
    SHARE = "share"  # a class below its minimum share
    HEAD = "head"  # the head of the queue, which it had passed while that lacked blocks


@dataclass(frozen=True, slots=True)
class Preempted:
    """A running sequence lost its slot and blocks.

    ``num_lost_tokens`` positions are to be recomputed, or ``num_swapped_blocks`` to be moved back.
    ``why`` says for a human what decided the mode.
    """

    request_id: RequestId
    index: int
    num_lost_tokens: int
    mode: PreemptionMode = PreemptionMode.RECOMPUTE
    cause: PreemptionCause = PreemptionCause.BLOCKS
    num_swapped_blocks: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A preempted sequence runs again; the KV of ``num_kept_tokens`` positions was saved."""

    request_id: RequestId
    index: int
    num_kept_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Log-probabilities of a stretch of the prompt. Each position is reported once."""

    request_id: RequestId
    index: int
    logprobs: PromptLogprobs


class TokenReady(NamedTuple):
    """One more output token of a sequence. A named tuple, since each step makes hundreds."""

    request_id: RequestId
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    token: SampledToken


@dataclass(frozen=True, slots=True)
class SequenceFinished:
    """A sequence ended; no token of it follows.

    ``stop_token_id`` is the token that ended it, if one did; that token also came as TokenReady.
    """

    request_id: RequestId
    index: int
    reason: FinishReason
    stop_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Terminal: all sequences of the request ended well."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Failed:
    """Terminal: computing the request failed. Others are not touched."""

    request_id: RequestId
    message: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Terminal: the client left, or somebody stopped the request."""

    request_id: RequestId
    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """Terminal: a deadline passed after ``waited_s`` seconds."""

    request_id: RequestId
    reason: ExpireReason
    waited_s: float


Event = (
    Admitted
    | Rejected
    | Started
    | Preempted
    | Resumed
    | PromptScored
    | TokenReady
    | SequenceFinished
    | Finished
    | Failed
    | Cancelled
    | Expired
)

TERMINAL = (Rejected, Finished, Failed, Cancelled, Expired)
