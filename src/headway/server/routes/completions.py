"""``POST /v1/completions``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from headway.core.events import FinishReason
from headway.generation.collect import Choice
from headway.generation.generator import COMPLETION_MAX_TOKENS, Generator
from headway.generation.params import GenerationParams, refuse
from headway.generation.scores import Scorer, text_offsets
from headway.generation.sequence_text import TextDelta
from headway.generation.stream import TextStream, Usage
from headway.generation.terms import Terms
from headway.server.answers import send_answer
from headway.server.disconnect import abandoning
from headway.server.endpoint import Exchange
from headway.server.front import FINGERPRINT, Front
from headway.server.logprobs import completion_logprobs, echo_logprobs, join, prompt_logprobs
from headway.server.params import MAX_CHOICES, Prompt, completion_params, prompts_of
from headway.server.refusals import check_completion
from headway.server.requests import CompletionRequest
from headway.server.responses import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    WireUsage,
    wire_usage,
)


@dataclass(frozen=True, slots=True)
class PromptView:
    """One prompt as answers show it: its text, where its tokens start there, and its stream.

    Without ``echo`` and ``logprobs`` there are no offsets.
    """

    text: str
    offsets: Sequence[int]
    stream: TextStream


class CompletionFormat:
    """Writes the answers to one completion request; choice i belongs to prompt ``i // n``."""

    def __init__(
        self,
        request: CompletionRequest,
        params: GenerationParams,
        model: str,
        class_name: str,
        generator: Generator,
        prompts: Sequence[PromptView],
    ) -> None:
        self._params = params
        self._model = model
        self._class_name = class_name
        self._tokenizer = generator.tokenizer
        self._prompts = prompts
        self._id = f"cmpl-{secrets.token_hex(16)}"
        self._created = int(time.time())
        self._echoes = bool(request.echo)
        self._wants_ids = bool(request.return_token_ids)
        self._wants_prompt_scores = request.prompt_logprobs is not None
        options = request.stream_options
        self._wants_usage = bool(options and options.include_usage)
        self._opened: set[int] = set()

    def chunks(self, deltas: Sequence[TextDelta]) -> list[bytes]:
        """Return one event per delta; the first of a choice carries the echo."""
        return [self._encode([self._chunk(delta)]) for delta in deltas]

    def closing(self, usage: Usage) -> list[bytes]:
        """Return the usage chunk, if the client wants one."""
        return [self._encode([], wire_usage(usage))] if self._wants_usage else []

    def whole(self, choices: list[Choice], usage: Usage) -> bytes:
        """Return the ``text_completion`` object."""
        answer = Completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._whole_choice(choice) for choice in choices],
            service_tier=self._class_name,
            system_fingerprint=FINGERPRINT,
            usage=wire_usage(usage),
        )
        return msgspec.json.encode(answer)

    def _prompt(self, index: int) -> PromptView:
        return self._prompts[index // self._params.n]

    def _chunk(self, delta: TextDelta) -> CompletionChoice:
        is_first = delta.index not in self._opened
        self._opened.add(delta.index)
        text, logprobs = self._shown(delta, is_first)
        return self._choice(
            delta.index, text, logprobs, delta.finish_reason, delta.stop_reason,
            list(delta.token_ids), is_first,
        )  # fmt: skip

    def _whole_choice(self, choice: Choice) -> CompletionChoice:
        text, logprobs = self._shown(choice, True)
        finish_reason = choice.finish_reason or FinishReason.STOP
        return self._choice(
            choice.index, text, logprobs, finish_reason, choice.stop_reason,
            choice.token_ids, True,
        )  # fmt: skip

    def _choice(
        self,
        index: int,
        text: str,
        logprobs: CompletionLogprobs | None,
        finish_reason: FinishReason | None,
        stop_reason: str | int | None,
        token_ids: list[int],
        is_first: bool,
    ) -> CompletionChoice:
        stream = self._prompt(index).stream
        shows_ids = self._wants_ids and is_first
        shows_scores = self._wants_prompt_scores and is_first
        return CompletionChoice(
            index,
            text,
            logprobs,
            finish_reason,
            UNSET if finish_reason is None else stop_reason,
            token_ids if self._wants_ids else UNSET,
            list(stream.prompt_token_ids) if shows_ids else UNSET,
            prompt_logprobs(stream.prompt_scores) if shows_scores else UNSET,
        )

    def _shown(
        self, part: TextDelta | Choice, is_first: bool
    ) -> tuple[str, CompletionLogprobs | None]:
        """Return text and log-probabilities, behind those of the prompt where it is echoed."""
        prompt = self._prompt(part.index)
        echoes = is_first and self._echoes
        text = prompt.text + part.text if echoes else part.text
        if self._params.logprobs is None:
            return text, None
        own = completion_logprobs(part.scores, part.offsets, len(prompt.text))
        return text, join(self._prompt_logprobs(prompt), own) if echoes else own

    def _prompt_logprobs(self, prompt: PromptView) -> CompletionLogprobs:
        scorer = Scorer(self._tokenizer)
        first = scorer.token(prompt.stream.prompt_token_ids[0], 0.0)
        rest = [position for position in prompt.stream.prompt_scores if position is not None]
        return echo_logprobs(first, rest, prompt.offsets)

    def _encode(self, choices: list[CompletionChoice], usage: WireUsage | None = None) -> bytes:
        chunk = Completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            service_tier=self._class_name,
            system_fingerprint=FINGERPRINT,
            usage=usage if self._wants_usage else UNSET,
        )
        return msgspec.json.encode(chunk)


async def _encode(
    generator: Generator, prompt: Prompt, request: CompletionRequest
) -> tuple[int, ...] | list[int]:
    if isinstance(prompt, list):
        return prompt
    adds = request.add_special_tokens is not False
    return await generator.encode(prompt, add_special_tokens=adds)


def _text_of(
    generator: Generator, prompt: Prompt, stream: TextStream, params: GenerationParams
) -> str:
    if isinstance(prompt, str):
        return prompt
    return generator.tokenizer.decode(
        stream.prompt_token_ids, skip_special_tokens=params.skip_special_tokens
    )


def _offsets_of(
    generator: Generator, prompt: Prompt, ids: Sequence[int], request: CompletionRequest
) -> list[int]:
    """Return where each token starts in the text that is echoed."""
    tokenizer = generator.tokenizer
    if isinstance(prompt, list):
        skips = request.skip_special_tokens is not False
        return text_offsets(tokenizer, ids, skip_special_tokens=skips)
    # all of a client's own text is echoed, but not what the tokenizer puts around it
    framed = request.add_special_tokens is not False
    before = len(tokenizer.framing.prefix_ids) if framed else 0
    after = len(tokenizer.framing.suffix_ids) if framed else 0
    own = ids[before : len(ids) - after]
    offsets = text_offsets(tokenizer, own, skip_special_tokens=False)
    end = len(prompt)  # the tokenizer may have normalised the text to a longer one
    return [0] * before + [min(offset, end) for offset in offsets] + [end] * after


def _view(
    generator: Generator,
    prompt: Prompt,
    stream: TextStream,
    params: GenerationParams,
    request: CompletionRequest,
) -> PromptView:
    text = _text_of(generator, prompt, stream, params)
    if not request.echo or params.logprobs is None:
        return PromptView(text, (), stream)
    return PromptView(
        text, _offsets_of(generator, prompt, stream.prompt_token_ids, request), stream
    )


async def _submit_all(
    generator: Generator,
    encoded: Sequence[Sequence[int]],
    params: GenerationParams,
    terms: Terms,
    streams: list[TextStream],
) -> None:
    for i, prompt in enumerate(encoded):
        stream = await generator.generate(
            prompt,
            params,
            default_max_tokens=COMPLETION_MAX_TOKENS,
            first_index=i * params.n,
            terms=terms,
        )
        streams.append(stream)


async def answer_completion(front: Front, request: CompletionRequest, exchange: Exchange) -> None:
    """Serve one completion request.

    Raises:
        RequestError: it asks for what does not exist.
        GenerationError: it did not end well, and nothing was sent yet.
    """
    exchange.record.echo(request.request_id)
    model, generator = front.model(request.model)
    check_completion(request)
    params = completion_params(request)
    terms = exchange.place(front.placement, request)
    prompts = prompts_of(request, generator.max_model_len)
    if len(prompts) * params.n > MAX_CHOICES:
        refuse("n", f"prompts times n must not exceed {MAX_CHOICES}.")
    encoded = [await _encode(generator, prompt, request) for prompt in prompts]
    async with abandoning() as streams:
        exchange.record.streams = streams
        await _submit_all(generator, encoded, params, terms, streams)
        exchange.report_clamp(streams)
        views = [
            _view(generator, prompt, stream, params, request)
            for prompt, stream in zip(prompts, streams, strict=True)
        ]
        wire = CompletionFormat(request, params, model, exchange.class_name, generator, views)
        as_events = bool(request.stream)
        await send_answer(streams, wire, exchange, as_events=as_events)
