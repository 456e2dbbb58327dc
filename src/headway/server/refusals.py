"""Fields that are known and not supported: only the values that ask for nothing pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from headway.errors import RequestError
from headway.generation.params import refuse
from headway.server.requests import (
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    ContentPart,
    GenerationRequest,
    StreamOptions,
)

MAX_MESSAGES = 2048

#: Content parts of all messages together.
MAX_PARTS = 2048

#: No value that means "off" is longer than this.
MAX_OFF_BYTES = 64

#: For each refused field the values that mean "off", beside null.
GENERATION: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "allowed_token_ids": (),
    "logprob_token_ids": (),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "return_tokens_as_token_ids": (False,),
    "stream_interval": (1,),
    "kv_transfer_params": (),
    "vllm_xargs": (),
    "repetition_detection": (),
    "thinking_token_budget": (),
}
COMPLETION: Mapping[str, tuple[Any, ...]] = {**GENERATION, "suffix": ("",)}
CHAT: Mapping[str, tuple[Any, ...]] = {
    **GENERATION,
    "tools": (),
    "tool_choice": ("none", "auto"),
    "functions": (),
    "function_call": ("none",),
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    "chat_template": (),
    "documents": (),
    "include_reasoning": (True,),
    "echo": (False,),
    "return_prompt_text": (False,),
    "mm_processor_kwargs": (),
}
STREAM_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "include_obfuscation": (False,),
    "continuous_usage_stats": (False,),
}
MESSAGE: Mapping[str, tuple[Any, ...]] = {
    "refusal": (),
    "audio": (),
    "tool_calls": ([],),
    "tool_call_id": (),
    "function_call": (),
    "reasoning": (),
    "reasoning_content": (),
}
PART: Mapping[str, tuple[Any, ...]] = {
    "image_url": (),
    "input_audio": (),
    "video_url": (),
    "audio_url": (),
    "file": (),
    "refusal": (),
}

#: Fields that nobody looks into, and what they must be if they are not null.
GENERATION_HINTS = {"metadata": "object", "prompt_cache_options": "object"}
MESSAGE_HINTS = {"annotations": "array"}
OPENINGS = {"object": b"{", "array": b"["}


def refuse_unsupported(param: str, explanation: str = "") -> NoReturn:
    """Raise the 400 that says ``param`` asks for something that does not exist here."""
    message = f"Unsupported parameter: '{param}' can't be served with this value."
    raise RequestError(
        f"{message} {explanation}".strip(), param=param, code="unsupported_parameter"
    )


def _is_off(raw: msgspec.Raw, off: tuple[Any, ...]) -> bool:
    if len(raw) > MAX_OFF_BYTES:
        return False
    value = msgspec.json.decode(raw) if raw else None
    return value is None or any(value == each and type(value) is type(each) for each in off)


def _check(struct: msgspec.Struct, table: Mapping[str, tuple[Any, ...]], prefix: str = "") -> None:
    for name, off in table.items():
        if not _is_off(getattr(struct, name), off):
            refuse_unsupported(prefix + name)


def _check_hints(struct: msgspec.Struct, hints: Mapping[str, str], prefix: str = "") -> None:
    """Check the type of hints by their first byte, since nothing else of them matters."""
    for name, kind in hints.items():
        first = bytes(memoryview(getattr(struct, name))[:1])
        if first not in (b"", b"n", OPENINGS[kind]):
            param = prefix + name
            message = f"Invalid '{param}': Expected `{kind} | null`."
            raise RequestError(message, param=param, code="invalid_type")


def check_options(options: StreamOptions | None, stream: bool) -> None:
    """Refuse stream options without a stream, and those that are not supported."""
    if options is None:
        return
    if not stream:
        raise RequestError(
            "'stream_options' is only allowed when 'stream' is true.",
            param="stream_options",
            code="invalid_value",
        )
    _check(options, STREAM_OPTIONS, "stream_options.")


def _check_shared(request: GenerationRequest) -> None:
    _check_hints(request, GENERATION_HINTS)
    check_options(request.stream_options, bool(request.stream))
    if request.prompt_logprobs is not None and request.stream:
        refuse_unsupported("prompt_logprobs", "It is not available with 'stream'.")


def check_completion(request: CompletionRequest) -> None:
    """Refuse what ``/v1/completions`` does not do."""
    _check(request, COMPLETION)
    _check_shared(request)
    n = 1 if request.n is None else request.n
    if request.best_of is not None and request.best_of != n:
        refuse_unsupported("best_of", f"Only best_of = n, which is {n}, is.")


def _check_part(part: ContentPart, where: str) -> None:
    if part.type != "text":
        refuse_unsupported(f"{where}.type", "Only text can be read.")
    if part.text is None:
        raise _missing(f"{where}.text")
    _check(part, PART, f"{where}.")


def _missing(param: str) -> RequestError:
    message = f"Missing required parameter: '{param}'."
    return RequestError(message, param=param, code="missing_required_parameter")


def check_message(message: ChatMessage, where: str) -> None:
    """Refuse roles and contents that no template here could be given."""
    if message.role in ("tool", "function"):
        refuse_unsupported(f"{where}.role", "Tools are not supported.")
    if message.role not in ("system", "developer", "user", "assistant"):
        raise RequestError(
            f"Invalid '{where}.role': must be system, developer, user or assistant.",
            param=f"{where}.role",
            code="invalid_value",
        )
    _check(message, MESSAGE, f"{where}.")
    _check_hints(message, MESSAGE_HINTS, f"{where}.")
    if message.content is None:
        raise _missing(f"{where}.content")
    if isinstance(message.content, list):
        for i, part in enumerate(message.content):
            _check_part(part, f"{where}.content[{i}]")


def _check_counts(messages: list[ChatMessage]) -> None:
    if len(messages) > MAX_MESSAGES:
        refuse("messages", f"at most {MAX_MESSAGES} messages.")
    contents = (message.content for message in messages)
    if sum(len(content) for content in contents if isinstance(content, list)) > MAX_PARTS:
        refuse("messages", f"at most {MAX_PARTS} parts in all messages together.")


def check_messages(messages: list[ChatMessage]) -> None:
    """Refuse an empty conversation, and messages that can't be read."""
    if not messages:
        raise RequestError("Invalid 'messages': empty array.", param="messages", code="empty_array")
    _check_counts(messages)
    for i, message in enumerate(messages):
        check_message(message, f"messages[{i}]")


def check_chat(request: ChatRequest) -> None:
    """Refuse what ``/v1/chat/completions`` does not do."""
    _check(request, CHAT)
    _check_shared(request)
    check_messages(request.messages)
    if request.top_logprobs is not None and not request.logprobs:
        raise RequestError(
            "'top_logprobs' is only allowed when 'logprobs' is true.",
            param="top_logprobs",
            code="invalid_value",
        )
