"""Response bodies: the objects of OpenAI's chat and completions endpoints, with vLLM's additions.

Fields typed ``| UnsetType`` are left out where they do not apply; None is sent as null.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from headway.generation.stream import Usage


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """How much of the prompts was not computed, since its keys and values were there already."""

    cached_tokens: int


class WireUsage(msgspec.Struct, frozen=True):
    """Token counts of the whole call; the prompt of several choices counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def wire_usage(usage: Usage) -> WireUsage:
    """Return token counts as they are sent."""
    total = usage.num_prompt_tokens + usage.num_completion_tokens
    details = PromptTokensDetails(usage.num_cached_tokens)
    return WireUsage(usage.num_prompt_tokens, usage.num_completion_tokens, total, details)


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the best tokens at a position."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """The token at a position, and the best ones there."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of a chat choice: one entry per token."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """The older format: parallel lists, one entry per token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None


class PromptLogprob(msgspec.Struct, frozen=True):
    """Log-probability of one candidate at a prompt position, as vLLM reports it."""

    logprob: float
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class ChatAnswer(msgspec.Struct, frozen=True):
    """The assistant's message."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """One finished answer."""

    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer to a chat request."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: WireUsage
    service_tier: str | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True):
    """What a chunk adds to a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """What a chunk adds to one choice."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a chat stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    service_tier: str | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    usage: WireUsage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionChoice(msgspec.Struct, frozen=True):
    """One choice of a completion, whole or as a chunk."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A completion, or one event of its stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    service_tier: str | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    usage: WireUsage | UnsetType | None = UNSET


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``/v1/models``."""

    id: str
    object: Literal["model"] = "model"
    created: int
    max_model_len: int
    root: str
    owned_by: str = "headway"
    parent: None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/models``."""

    object: Literal["list"] = "list"
    data: list[Model]


class Tokens(msgspec.Struct, frozen=True):
    """Answer of ``/tokenize``."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class Prompt(msgspec.Struct, frozen=True):
    """Answer of ``/detokenize``."""

    prompt: str
