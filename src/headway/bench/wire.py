"""OpenAI's API as servers speak it: the bodies that are sent, the chunks that come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from headway.bench.errors import ExchangeError, TargetError
from headway.bench.target import Target
from headway.workload import Arrival, Content

Endpoint = Literal["chat", "completions"]
PromptFormat = Literal["text", "ids"]

_PATHS: Mapping[str, str] = {"chat": "chat/completions", "completions": "completions"}
_MAX_DETAIL = 300


class Delta(msgspec.Struct):
    """What a chunk of a conversation adds; servers name the thoughts of a model differently."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None

    @property
    def has_output(self) -> bool:
        """Whether the model said something."""
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class Choice(msgspec.Struct):
    """A part of the answer: with ``text`` for completions, with ``delta`` for conversations."""

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    @property
    def has_output(self) -> bool:
        """Whether the model said something."""
        return bool(self.text) or (self.delta is not None and self.delta.has_output)


class CachedTokens(msgspec.Struct):
    """Tokens of a prompt that the server had seen before."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's own count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: CachedTokens | None = None


class Chunk(msgspec.Struct):
    """One event of a stream."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


_chunks = msgspec.json.Decoder(Chunk)
_models = msgspec.json.Decoder(_Models)


def read_chunk(data: bytes) -> Chunk:
    """Decode an event.

    Raises:
        ExchangeError: it is no chunk, or says that the request failed.
    """
    try:
        chunk = _chunks.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ExchangeError("bad answer", f"{error}: {data[:80]!r}") from None
    if chunk.error:
        code, message = _complaint({"error": chunk.error})
        raise ExchangeError(f"stream error {code}".strip(), message)
    return chunk


def refusal(status: int, body: bytes) -> ExchangeError:
    """Return what an answer with a status of failure is, with the server's own code."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ExchangeError(f"http {status}", body[:_MAX_DETAIL].decode("utf-8", "replace"))
    code, message = _complaint(said)
    return ExchangeError(f"http {status} {code}".strip(), message)


def _complaint(said: Any) -> tuple[str, str]:
    """Find code and message: in OpenAI's envelope, or flat, as SGLang has it."""
    error = said.get("error", said) if isinstance(said, dict) else said
    if not isinstance(error, dict):
        return "", str(error)[:_MAX_DETAIL]
    code, kind = error.get("code"), error.get("type")
    chosen = code if isinstance(code, str) and code else kind  # vLLM's codes are the status again
    message = str(error.get("message", error))[:_MAX_DETAIL]
    return (chosen if isinstance(chosen, str) else ""), message


def read_models(body: bytes) -> list[tuple[str, int | None]]:
    """Return (name, longest sequence in tokens, where the server says it) of each model.

    Raises:
        TargetError: it is no list of models.
    """
    try:
        return [(each.id, each.max_model_len) for each in _models.decode(body).data]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TargetError(f"/v1/models is not as OpenAI's API has it: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How requests are written.

    Attributes:
        target: the server.
        model: its name there.
        endpoint: which of the two.
        prompt_format: ``ids`` sends made-up token ids, exactly as many as the workload says.
        ignore_eos: whether answers go on to their full length, where the server knows that.
        class_header: header that names the class; None puts it into ``service_tier``.
        tenant_header: header that names the tenant; None doesn't tell.
        headers: sent with each request.
        extra: fields added to each body.
    """

    target: Target
    model: str
    endpoint: Endpoint
    prompt_format: PromptFormat
    ignore_eos: bool
    class_header: str | None = None
    tenant_header: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def request(self, name: str, arrival: Arrival, content: Content) -> bytes:
        """Return a whole request as bytes; ``name`` tells made-up prompts apart."""
        headers = dict(self.headers)
        if self.class_header is not None:
            headers[self.class_header] = arrival.class_name
        if self.tenant_header is not None and arrival.tenant:
            headers[self.tenant_header] = arrival.tenant
        body = msgspec.json.encode(self.body(name, arrival, content))
        path = self.target.path(_PATHS[self.endpoint])
        return _head("POST", path, self.target, headers, len(body)) + body

    def body(self, name: str, arrival: Arrival, content: Content) -> dict[str, Any]:
        """Return the fields of a request."""
        fields: dict[str, Any] = {"model": self.model, **self._prompt(name, arrival, content)}
        if arrival.max_tokens is not None:
            fields["max_tokens"] = arrival.max_tokens
        fields["stream"] = True
        fields["stream_options"] = {"include_usage": True}
        if self.ignore_eos:
            fields["ignore_eos"] = True
        if self.class_header is None and arrival.class_name != "default":
            fields["service_tier"] = arrival.class_name
        if arrival.priority is not None:
            fields["priority"] = arrival.priority
        return fields | dict(self.extra)

    def _prompt(self, name: str, arrival: Arrival, content: Content) -> dict[str, Any]:
        if self.endpoint == "completions":
            if self.prompt_format == "ids":
                return {"prompt": content.token_ids(name, arrival)}
            return {"prompt": content.text(name, arrival)}
        if arrival.prompt is not None and arrival.prompt.messages:
            return {"messages": list(arrival.prompt.messages)}
        return {"messages": [{"role": "user", "content": content.text(name, arrival)}]}


def get(target: Target, rest: str, headers: Mapping[str, str]) -> bytes:
    """Return a request that asks for something (``models``)."""
    return _head("GET", target.path(rest), target, headers, 0)


def _head(method: str, path: str, target: Target, headers: Mapping[str, str], length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.authority}"]
    if length:
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8")
