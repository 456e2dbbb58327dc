"""Request bodies: every field that clients of OpenAI and vLLM send, strictly typed.

A field is *supported* (it has its own type here), *a hint* (accepted, and without effect on the
answer by its own definition) or *refused* (checked in :mod:`headway.server.refusals`: only the
values that ask for nothing pass). A field that is not here at all is an error. What is not used is
not parsed into objects either: it stays raw JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

Refused = msgspec.Raw

#: An object or array that nobody looks into; a check of its kind is all it gets.
Container = msgspec.Raw

NOTHING = msgspec.Raw()


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``stream_options``; only ``include_usage`` has an effect."""

    include_usage: bool | None = None
    include_obfuscation: Refused = NOTHING
    continuous_usage_stats: Refused = NOTHING


class GenerationRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that both endpoints share. None always means that the client is silent."""

    # OpenAI
    model: str | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # vLLM
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    add_special_tokens: bool | None = None
    request_id: str | None = None

    # who goes first: OpenAI's, vLLM's, Headway's own
    service_tier: str | None = None
    priority: int | None = None
    cache_salt: str | None = None
    expected_output_tokens: int | None = None

    # hints
    user: str | None = None
    metadata: Container = NOTHING
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Container = NOTHING
    session_id: str | None = None

    # refused, unless they ask for nothing
    store: Refused = NOTHING
    response_format: Refused = NOTHING
    structured_outputs: Refused = NOTHING
    allowed_token_ids: Refused = NOTHING
    logprob_token_ids: Refused = NOTHING
    bad_words: Refused = NOTHING
    use_beam_search: Refused = NOTHING
    length_penalty: Refused = NOTHING
    spaces_between_special_tokens: Refused = NOTHING
    truncate_prompt_tokens: Refused = NOTHING
    truncation_side: Refused = NOTHING
    return_tokens_as_token_ids: Refused = NOTHING
    stream_interval: Refused = NOTHING
    kv_transfer_params: Refused = NOTHING
    vllm_xargs: Refused = NOTHING
    repetition_detection: Refused = NOTHING
    thinking_token_budget: Refused = NOTHING


class CompletionRequest(GenerationRequest, forbid_unknown_fields=True, kw_only=True):
    """Body of ``POST /v1/completions``."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None
    suffix: Refused = NOTHING


class ContentPart(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One part of a message; only text can be read."""

    type: str
    text: str | None = None
    image_url: Refused = NOTHING
    input_audio: Refused = NOTHING
    video_url: Refused = NOTHING
    audio_url: Refused = NOTHING
    file: Refused = NOTHING
    refusal: Refused = NOTHING


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One message, also in the shape in which assistants' answers come back from clients."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    annotations: Container = NOTHING
    refusal: Refused = NOTHING
    audio: Refused = NOTHING
    tool_calls: Refused = NOTHING
    tool_call_id: Refused = NOTHING
    function_call: Refused = NOTHING
    reasoning: Refused = NOTHING
    reasoning_content: Refused = NOTHING


class ChatRequest(GenerationRequest, forbid_unknown_fields=True, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None  # a hint: without tools there is nothing to say

    # refused, unless they ask for nothing
    tools: Refused = NOTHING
    tool_choice: Refused = NOTHING
    functions: Refused = NOTHING
    function_call: Refused = NOTHING
    audio: Refused = NOTHING
    modalities: Refused = NOTHING
    moderation: Refused = NOTHING
    prediction: Refused = NOTHING
    reasoning_effort: Refused = NOTHING
    verbosity: Refused = NOTHING
    web_search_options: Refused = NOTHING
    chat_template: Refused = NOTHING
    documents: Refused = NOTHING
    include_reasoning: Refused = NOTHING
    echo: Refused = NOTHING
    return_prompt_text: Refused = NOTHING
    mm_processor_kwargs: Refused = NOTHING


class TokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of ``POST /tokenize``: a prompt, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of ``POST /detokenize``."""

    model: str | None = None
    tokens: list[int]
