"""From request bodies to generation parameters, prompts and messages."""

from __future__ import annotations

from typing import Any, cast

from headway.errors import RequestError
from headway.generation.params import MAX_LOGPROBS, GenerationParams, refuse
from headway.server.requests import ChatMessage, ChatRequest, CompletionRequest, GenerationRequest

MAX_PROMPTS = 1024

#: Choices of one call: prompts times ``n``.
MAX_CHOICES = 1024

#: Fields that pass under the same name; where the client is silent, so is the result.
SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "prompt_logprobs",
)

Prompt = str | list[int]


def _shared(request: GenerationRequest) -> dict[str, Any]:
    given = {name: getattr(request, name) for name in SAME_NAME}
    params = {name: value for name, value in given.items() if value is not None}
    stop = request.stop
    params["stop"] = (stop,) if isinstance(stop, str) else tuple(stop or ())
    params["stop_token_ids"] = tuple(request.stop_token_ids or ())
    return params


def chat_params(request: ChatRequest) -> GenerationParams:
    """Return what a chat request asks of generation."""
    name = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    max_tokens: int | None = getattr(request, name)
    if max_tokens is not None and max_tokens < 1:
        refuse(name, "must be at least 1.")
    top = request.top_logprobs or 0
    if not 0 <= top <= MAX_LOGPROBS:
        refuse("top_logprobs", f"must be between 0 and {MAX_LOGPROBS}.")
    logprobs = top if request.logprobs else None
    return GenerationParams(max_tokens=max_tokens, logprobs=logprobs, **_shared(request))


def completion_params(request: CompletionRequest) -> GenerationParams:
    """Return what a completion request asks of generation.

    With ``echo``, ``logprobs`` covers the prompt too, and ``max_tokens`` may be 0.
    """
    if request.max_tokens is not None and request.max_tokens < 1 and not request.echo:
        refuse("max_tokens", "must be at least 1; 0 is only allowed with 'echo'.")
    shared = _shared(request)
    if request.echo and request.logprobs is not None:
        shared.setdefault("prompt_logprobs", request.logprobs)
    return GenerationParams(max_tokens=request.max_tokens, logprobs=request.logprobs, **shared)


def _strings(items: list[Any]) -> list[Prompt] | None:
    return items if all(isinstance(item, str) for item in items) else None


def _ids(items: list[Any]) -> list[Prompt] | None:
    return [items] if all(isinstance(item, int) for item in items) else None


def _lists(items: list[Any]) -> list[Prompt] | None:
    return items if all(isinstance(item, list) for item in items) else None


def prompts_of(request: CompletionRequest, max_model_len: int) -> list[Prompt]:
    """Return the prompts in order, each a text or a list of token ids; at least one.

    More token ids than the model takes are not looked at: whoever submits them refuses them.
    """
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError("Invalid 'prompt': empty array.", param="prompt", code="empty_array")
    if isinstance(prompt[0], int):
        if len(prompt) > max_model_len:
            return [cast("list[int]", prompt)]
    elif len(prompt) > MAX_PROMPTS:
        refuse("prompt", f"at most {MAX_PROMPTS} prompts per request.")
    prompts = _strings(prompt) or _ids(prompt) or _lists(prompt)
    if prompts is None:
        refuse(
            "prompt", "must be a string, or an array of only strings, token ids, or arrays of ids."
        )
    return prompts


def _content(message: ChatMessage) -> str | list[dict[str, str]]:
    if isinstance(message.content, list):
        return [{"type": part.type, "text": part.text or ""} for part in message.content]
    return message.content or ""


def template_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as chat templates take them; ``developer`` is another word for ``system``."""
    rendered: list[dict[str, Any]] = []
    for message in messages:
        role = "system" if message.role == "developer" else message.role
        entry: dict[str, Any] = {"role": role, "content": _content(message)}
        if message.name is not None:
            entry["name"] = message.name
        rendered.append(entry)
    return rendered
