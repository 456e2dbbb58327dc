"""``POST /v1/chat/completions``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from headway.errors import RequestError
from headway.generation.collect import Choice
from headway.generation.generator import Generator
from headway.generation.params import GenerationParams
from headway.generation.sequence_text import TextDelta
from headway.generation.stream import TextStream, Usage
from headway.server.answers import send_answer
from headway.server.disconnect import abandoning
from headway.server.endpoint import Exchange
from headway.server.front import FINGERPRINT, Front
from headway.server.logprobs import chat_logprobs, prompt_logprobs
from headway.server.params import chat_params, template_messages
from headway.server.refusals import check_chat
from headway.server.requests import ChatMessage, ChatRequest, TokenizeRequest
from headway.server.responses import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    WireUsage,
    wire_usage,
)


class ChatFormat:
    """Writes the answers to one chat request."""

    def __init__(
        self,
        request: ChatRequest,
        params: GenerationParams,
        model: str,
        class_name: str,
        stream: TextStream,
    ) -> None:
        self._params = params
        self._model = model
        self._class_name = class_name
        self._stream = stream
        self._id = f"chatcmpl-{secrets.token_hex(16)}"
        self._created = int(time.time())
        self._wants_ids = bool(request.return_token_ids)
        options = request.stream_options
        self._wants_usage = bool(options and options.include_usage)
        self._reports_tokens = self._wants_ids or params.logprobs is not None
        self._has_opened = False

    def chunks(self, deltas: Sequence[TextDelta]) -> list[bytes]:
        """Return the events for a batch: content and finish are separate chunks."""
        events = [] if self._has_opened else self._opening()
        for delta in deltas:
            if delta.text or (delta.token_ids and self._reports_tokens):
                events.append(self._encode([self._content(delta)]))
            if delta.finish_reason is not None:
                events.append(self._encode([self._finish(delta)]))
        return events

    def closing(self, usage: Usage) -> list[bytes]:
        """Return the usage chunk, if the client wants one."""
        return [self._encode([], wire_usage(usage))] if self._wants_usage else []

    def whole(self, choices: list[Choice], usage: Usage) -> bytes:
        """Return the ``chat.completion`` object."""
        wants_scores = self._params.prompt_logprobs is not None
        answer = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(choice) for choice in choices],
            usage=wire_usage(usage),
            service_tier=self._class_name,
            system_fingerprint=FINGERPRINT,
            prompt_token_ids=self._prompt_ids(),
            prompt_logprobs=prompt_logprobs(self._stream.prompt_scores) if wants_scores else UNSET,
        )
        return msgspec.json.encode(answer)

    def _opening(self) -> list[bytes]:
        self._has_opened = True
        delta = ChatDelta(role="assistant", content="")
        return [
            self._encode([ChatChunkChoice(i, delta)], prompt_ids=UNSET if i else self._prompt_ids())
            for i in range(self._params.n)
        ]

    def _content(self, delta: TextDelta) -> ChatChunkChoice:
        logprobs = None if self._params.logprobs is None else chat_logprobs(delta.scores)
        ids = list(delta.token_ids) if self._wants_ids else UNSET
        return ChatChunkChoice(delta.index, ChatDelta(content=delta.text), logprobs, token_ids=ids)

    def _finish(self, delta: TextDelta) -> ChatChunkChoice:
        return ChatChunkChoice(
            delta.index,
            ChatDelta(),
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason,
        )

    def _choice(self, choice: Choice) -> ChatChoice:
        logprobs: ChatLogprobs | None = None
        if self._params.logprobs is not None:
            logprobs = chat_logprobs(choice.scores)
        return ChatChoice(
            choice.index,
            ChatAnswer(choice.text),
            logprobs,
            choice.finish_reason or "stop",
            choice.stop_reason,
            choice.token_ids if self._wants_ids else UNSET,
        )

    def _prompt_ids(self) -> list[int] | UnsetType:
        return list(self._stream.prompt_token_ids) if self._wants_ids else UNSET

    def _encode(
        self,
        choices: list[ChatChunkChoice],
        usage: WireUsage | None = None,
        prompt_ids: list[int] | UnsetType = UNSET,
    ) -> bytes:
        chunk = ChatChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            service_tier=self._class_name,
            system_fingerprint=FINGERPRINT,
            usage=usage if self._wants_usage else UNSET,
            prompt_token_ids=prompt_ids,
        )
        return msgspec.json.encode(chunk)


async def encode_messages(
    generator: Generator, messages: list[ChatMessage], request: ChatRequest | TokenizeRequest
) -> tuple[int, ...]:
    """Render and tokenise the messages of a request.

    Raises:
        RequestError: the conversation can't be rendered, or is too long.
    """
    continues = bool(request.continue_final_message)
    opens = (
        not continues if request.add_generation_prompt is None else request.add_generation_prompt
    )
    if opens and continues:
        raise RequestError(
            "'continue_final_message' and 'add_generation_prompt' exclude each other.",
            param="continue_final_message",
            code="invalid_value",
        )
    return await generator.encode_chat(
        template_messages(messages),
        add_generation_prompt=opens,
        continue_final_message=continues,
        add_special_tokens=bool(request.add_special_tokens),
        template_kwargs=request.chat_template_kwargs,
    )


async def answer_chat(front: Front, request: ChatRequest, exchange: Exchange) -> None:
    """Serve one chat request.

    Raises:
        RequestError: it asks for what does not exist.
        GenerationError: it did not end well, and nothing was sent yet.
    """
    exchange.record.echo(request.request_id)
    model, generator = front.model(request.model)
    check_chat(request)
    params = chat_params(request)
    terms = exchange.place(front.placement, request)
    prompt = await encode_messages(generator, request.messages, request)
    async with abandoning() as streams:
        exchange.record.streams = streams
        stream = await generator.generate(prompt, params, terms=terms, param="messages")
        streams.append(stream)
        exchange.report_clamp(streams)
        wire = ChatFormat(request, params, model, exchange.class_name, stream)
        as_events = bool(request.stream)
        await send_answer(streams, wire, exchange, as_events=as_events)
