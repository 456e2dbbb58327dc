"""The Python API: a model in this process, with the same engine that serves over HTTP.

>>> from headway import LLM
>>> with LLM() as llm:
...     print(llm.chat("What is the capital of Germany?").text)
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any

from headway.assembly import Assembly, assemble
from headway.config import Loaded, Settings, all_settings, load_settings, nearest
from headway.errors import ConfigError, RequestError
from headway.generation.collect import Choice, collect
from headway.generation.loop_thread import LoopThread
from headway.generation.params import GenerationParams, is_integer, refuse
from headway.generation.scores import ScoredPosition
from headway.generation.sequence_text import TextDelta
from headway.generation.stream import TextStream
from headway.generation.terms import Terms
from headway.generation.window import in_window
from headway.models.progress import Progress, on_standard_error

_log = logging.getLogger(__name__)

#: A text, or the ids of its tokens.
Prompt = str | Sequence[int]

#: Messages as in the HTTP API.
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. ``finish_reason`` is ``stop`` or ``length``.

    ``logprobs`` has an entry for each token if they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None
    logprobs: tuple[ScoredPosition, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """The answers to one prompt, and their cost in tokens.

    The KV of ``num_cached_tokens`` of the prompt was there already; that depends on what ran
    before, so it does not count when outputs are compared. ``prompt_logprobs`` has an entry for
    each token of the prompt if they were asked for; that of the first is None: nothing precedes it.
    """

    choices: tuple[Completion, ...]
    prompt_token_ids: tuple[int, ...]
    num_output_tokens: int
    num_cached_tokens: int = field(default=0, compare=False)
    prompt_logprobs: tuple[ScoredPosition | None, ...] = ()

    @property
    def text(self) -> str:
        """The text of the first answer."""
        return self.choices[0].text


class AnswerStream(Iterator[str]):
    """The pieces of an answer as they come. Closing or dropping it cancels the request.

    A context manager, which closes it. Iteration may raise what :meth:`LLM.chat` raises.
    """

    def __init__(self, llm: LLM, source: TextStream) -> None:
        self._llm = llm  # which must not go while somebody reads
        self._source = source
        self._has_ended = False

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> str:
        while not self._has_ended:
            batch = self._next_batch()
            text = "".join(delta.text for delta in batch)
            if text:
                return text
            self._has_ended = not batch
        raise StopIteration

    def close(self) -> None:
        """Cancel the request, unless it has ended; iteration ends. Idempotent, and never waits."""
        self._has_ended = True
        self._llm._thread.post(partial(self._source.cancel, "abandoned"))

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _next_batch(self) -> tuple[TextDelta, ...]:
        try:
            return self._llm._thread.call(self._source.next_batch())
        except BaseException:
            self.close()
            raise


class LLM:
    """A loaded model. All methods may be called from any thread, also several at once.

    One that is dropped without :meth:`close` ends by itself, soon after; one that is left at the
    exit of the program ends there.

    Args:
        model: what ``headway serve`` takes: a path, a known name or a repository id.
        progress: takes a line for people now and then while a model is downloaded.
        settings: any setting that needs no server, by the name of its flag (``max_num_seqs=8``,
            ``quantization="bfloat16"``, …).

    Raises:
        UsageError: the model or a setting can't be used.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        progress: Progress = on_standard_error,
        **settings: Any,
    ) -> None:
        loaded = _load(model, settings)
        for warning in loaded.warnings:
            _log.warning(warning)
        self._run(assemble(_without_caps(loaded.settings), progress))

    @classmethod
    def from_settings(cls, settings: Settings, progress: Progress = on_standard_error) -> LLM:
        """Load a model as complete settings say, but for the caps that protect a server."""
        return cls.from_assembly(assemble(_without_caps(settings), progress))

    @classmethod
    def from_assembly(cls, assembly: Assembly) -> LLM:
        """Take over parts that are put together already; the engine must not be started."""
        llm = cls.__new__(cls)
        llm._run(assembly)
        return llm

    def _run(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._thread = LoopThread(assembly.engine.start, assembly.engine.stop)
        weakref.finalize(self, self._thread.end).atexit = False  # the thread sees to that

    @property
    def assembly(self) -> Assembly:
        """The parts: tokenizer, engine, metrics, settings."""
        return self._assembly

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        params: GenerationParams | None = None,
        *,
        terms: Terms | None = None,
    ) -> list[Output]:
        """Complete each prompt, a text or token ids; the order of the answers is theirs.

        All of them share batches. There may be any number: those that the engine does not need
        yet wait here. ``terms`` say in which class they are served, and before whom.

        Raises:
            RequestError: a prompt or parameter is refused; nothing else goes on running.
            GenerationError: a prompt was taken and ended without a result, and so did the others.
            EngineStoppedError: this LLM is closed, or its engine has failed.
        """
        return self._thread.call(self._complete_all(_prompts(prompts), _checked(params), terms))

    def chat(
        self,
        messages: str | Messages,
        params: GenerationParams | None = None,
        *,
        terms: Terms | None = None,
    ) -> Output:
        """Answer a conversation; a string is one message of the user.

        Raises:
            RequestError: the conversation or a parameter is refused.
            GenerationError: the request was taken and ended without a result.
            EngineStoppedError: this LLM is closed, or its engine has failed.
        """
        return self._thread.call(self._chat(_conversation(messages), _checked(params), terms))

    def stream(
        self,
        messages: str | Messages,
        params: GenerationParams | None = None,
        *,
        terms: Terms | None = None,
    ) -> AnswerStream:
        """Answer a conversation piece by piece; the pieces add up to the text.

        The request runs from now on; closing or dropping the stream cancels it.

        Raises:
            RequestError: the conversation or a parameter is refused, or ``n`` is not 1.
            EngineStoppedError: this LLM is closed, or its engine has failed.
        """
        params = _one_answer(params)
        return self._thread.call(self._stream_chat(_conversation(messages), params, terms))

    def stream_text(
        self,
        prompt: Prompt,
        params: GenerationParams | None = None,
        *,
        terms: Terms | None = None,
    ) -> AnswerStream:
        """Complete a prompt piece by piece, as :meth:`stream` does a conversation."""
        _check_prompt("prompt", prompt)
        return self._thread.call(self._stream_text(prompt, _one_answer(params), terms))

    def close(self) -> None:
        """Cancel what runs, in other threads too, and end the engine. Idempotent."""
        self._thread.close()
        if self.assembly.keeper is not None:
            self.assembly.keeper.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _complete_all(
        self, prompts: Mapping[str, Prompt], params: GenerationParams, terms: Terms | None
    ) -> list[Output]:
        async def complete(name: str) -> Output:
            return await _read(await self._open_text(prompts[name], params, terms, name), params)

        # enough to fill the next batch while this one runs
        return await in_window(
            complete, list(prompts), 2 * self._assembly.engine.limits.max_num_seqs
        )

    async def _chat(
        self, messages: Messages, params: GenerationParams, terms: Terms | None
    ) -> Output:
        return await _read(await self._open_chat(messages, params, terms), params)

    async def _stream_chat(
        self, messages: Messages, params: GenerationParams, terms: Terms | None
    ) -> AnswerStream:
        # made here, on the loop: if the caller is gone when it comes, it cancels itself
        return AnswerStream(self, await self._open_chat(messages, params, terms))

    async def _stream_text(
        self, prompt: Prompt, params: GenerationParams, terms: Terms | None
    ) -> AnswerStream:
        return AnswerStream(self, await self._open_text(prompt, params, terms, "prompt"))

    async def _open_text(
        self, prompt: Prompt, params: GenerationParams, terms: Terms | None, name: str
    ) -> TextStream:
        generator = self._assembly.generator
        ids = await generator.encode(prompt, param=name) if isinstance(prompt, str) else prompt
        return await generator.generate(ids, params, terms=terms, param=name)

    async def _open_chat(
        self, messages: Messages, params: GenerationParams, terms: Terms | None
    ) -> TextStream:
        generator = self._assembly.generator
        prompt = await generator.encode_chat(messages)
        return await generator.generate(prompt, params, terms=terms, param="messages")


async def _read(stream: TextStream, params: GenerationParams) -> Output:
    async with stream:
        choices = await collect(stream)
    return Output(
        tuple(map(_completion, choices)),
        stream.prompt_token_ids,
        stream.usage.num_completion_tokens,
        stream.usage.num_cached_tokens,
        () if params.prompt_logprobs is None else tuple(stream.prompt_scores),
    )


def _completion(choice: Choice) -> Completion:
    assert choice.finish_reason is not None, "a stream that ended well has finished every choice"
    return Completion(
        choice.text,
        tuple(choice.token_ids),
        choice.finish_reason.value,
        choice.stop_reason,
        tuple(choice.scores),
    )


def _checked(params: GenerationParams | None) -> GenerationParams:
    if params is None:
        return GenerationParams()
    if not isinstance(params, GenerationParams):
        refuse("params", f"must be GenerationParams, not {type(params).__name__}.")
    return params


def _one_answer(params: GenerationParams | None) -> GenerationParams:
    chosen = _checked(params)
    if chosen.n != 1:
        raise RequestError("A stream has one answer, so n must be 1.", param="n")
    return chosen


def _conversation(messages: str | Messages) -> Messages:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _prompts(given: Prompt | Iterable[Prompt]) -> dict[str, Prompt]:
    """Return the prompts by the names that messages call them."""
    if isinstance(given, bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        _check_prompt("prompts", given)
    if isinstance(given, str):
        return {"prompts": given}
    prompts: list[Any] = list(given)
    if prompts and all(map(is_integer, prompts)):
        return {"prompts": prompts}
    named = {f"prompts[{index}]": prompt for index, prompt in enumerate(prompts)}
    for name, prompt in named.items():
        _check_prompt(name, prompt)
    return named


def _check_prompt(name: str, prompt: object) -> None:
    if not isinstance(prompt, str | list | tuple):
        refuse(name, f"must be a text or a list of token ids, not {type(prompt).__name__}.")


#: sections whose settings mean something without a server
_SECTIONS = ("model", "scheduler", "kv", "simulation", "journal", "profile")

#: caps that keep a server from falling behind; here each caller waits for its own answers
_CAPS = ("max_queue_requests", "max_queue_tokens")


def _without_caps(settings: Settings) -> Settings:
    scheduler = replace(settings.scheduler, max_queue_requests=sys.maxsize, max_queue_tokens=None)
    classes = {
        name: replace(each, max_queue_requests=None, max_queue_tokens=None)
        for name, each in settings.classes.items()
    }
    # the reader is the caller itself, so what it has not read is its own memory
    server = replace(settings.server, max_buffered_events=sys.maxsize)
    return replace(settings, scheduler=scheduler, server=server, classes=classes)


def _load(model: str | os.PathLike[str] | None, given: dict[str, Any]) -> Loaded:
    """Return the settings: keyword arguments over environment over file, as for a command."""
    flags: dict[str, Any] = {_setting_key(name): value for name, value in given.items()}
    if model is not None:
        flags["model.path"] = os.fspath(model)
    return load_settings(None, os.environ, flags)


def _setting_key(name: str) -> str:
    if name in _CAPS:
        raise ConfigError(f"{name} is for servers; here callers wait instead of being refused")
    known = {s.flag.removeprefix("--").replace("-", "_"): s for s in all_settings()}
    known = {flag: setting for flag, setting in known.items() if setting.section in _SECTIONS}
    if name not in known:
        raise ConfigError(f"unknown setting {name}{nearest(name, set(known) - set(_CAPS))}")
    return known[name].key
