"""The contract between scheduler and executor: what one step computes, and what came of it.

An executor keeps, for each sequence, its tokens (the prompt from :class:`NewSequence`, then every
token that the executor itself sampled) and its block table (from :class:`TableUpdate`). A plan
therefore names positions, not tokens, and may be made before the result of the previous one is
known. Executors run plans in the order of ``step_id``.

The parts of a plan take effect in this order: ``released``, ``new_sequences``, ``table_updates``,
``swap_out``, ``copies`` (one after the other), ``swap_in``, ``slices``. Releasing a sequence that
the executor never met is no error, since the step that introduced it may have failed as a whole; a
second plan that was made on top of such a step names sequences that were never met, so it fails as
a whole too. All reported numbers are finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NewType

from headway.core.sampling import SamplingParams

if TYPE_CHECKING:
    from headway.core.events import Event

RequestId = NewType("RequestId", str)
SequenceId = NewType("SequenceId", int)


@dataclass(frozen=True, slots=True)
class NewSequence:
    """A sequence that the executor has not seen before."""

    sequence_id: SequenceId
    request_id: RequestId
    index: int  # which of the request's n sequences
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """From entry ``first_index`` on, the sequence's block table is ``block_ids``.

    Growth appends; ``first_index`` 0 replaces the whole table, as when a sequence resumes.
    """

    sequence_id: SequenceId
    first_index: int
    block_ids: tuple[int, ...]


class BlockMove(NamedTuple):
    """Copy all ``block_size`` positions of block ``source`` to block ``target``, in all layers.

    In ``copies`` both are blocks of the pool (copy-on-write: positions that a sequence does not
    share are overwritten before they are read). In ``swap_out`` the target, in ``swap_in`` the
    source is a block of the swap space, which has block ids of its own.
    """

    source: int
    target: int


class Padding(NamedTuple):
    """How far a step of a padded batching mode computes beyond its slices, to no use.

    The step computes ``num_sequences`` (at least as many as there are slices) times ``num_rows``
    (at least the longest slice) positions, each of which attends over ``length`` positions (at
    least the furthest end of a slice). What is padding writes to no block of the pool, and changes
    no result.
    """

    num_sequences: int
    num_rows: int
    length: int


class Slice(NamedTuple):
    """One sequence's part of a step: compute positions ``start`` to ``start + count - 1``.

    A named tuple, since hundreds are made in every step. Their keys and values go to the sequence's
    blocks (position p lives in entry ``p // block_size`` of its table, at offset ``p %
    block_size``). With ``sample``, the logits of the last position give one token, which the
    executor appends to the sequence.
    """

    sequence_id: SequenceId
    start: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    sample: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes. ``events`` are decisions taken while planning, for the front end.

    ``padding`` is set in the padded batching modes only.
    """

    step_id: int
    slices: tuple[Slice, ...]
    new_sequences: tuple[NewSequence, ...] = ()
    table_updates: tuple[TableUpdate, ...] = ()
    released: tuple[SequenceId, ...] = ()  # the executor forgets these
    swap_out: tuple[BlockMove, ...] = ()
    copies: tuple[BlockMove, ...] = ()
    swap_in: tuple[BlockMove, ...] = ()
    padding: Padding | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to compute now. Ask again at ``until`` (seconds), or when work arrives if None."""

    until: float | None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position: of the token that stands there, and of the best ones."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # best first


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token that a step sampled; ``logprobs`` where the request asked for them."""

    token_id: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of the prompt tokens at positions ``start``, ``start + 1``, …

    All sequences of a request share the prompt, so only index 0 is scored. Position 0 has no
    log-probability, so ``start`` is at least 1. A step whose slice computes positions
    ``[a, b)`` scores the prompt tokens at ``[a + 1, b + 1)``.
    """

    start: int
    entries: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a plan. A step can fail in part: ``failures`` says whose slice, and why.

    With ``is_lost`` the executor raised, so nobody knows which parts of the plan took effect.
    """

    step_id: int
    tokens: Mapping[SequenceId, SampledToken]
    failures: Mapping[SequenceId, str] = field(default_factory=dict)
    prompt_logprobs: Mapping[SequenceId, PromptLogprobs] = field(default_factory=dict)
    elapsed_s: float = 0.0
    is_lost: bool = False
