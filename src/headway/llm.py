"""The Python API: a model in this process, with the same engine that serves over HTTP.

>>> from headway import LLM
>>> with LLM() as llm:
...     print(llm.chat("What is the capital of France?").text)
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from headway.assembly import Assembly, assemble
from headway.config import Settings, all_settings, load_settings, nearest
from headway.errors import ConfigError, EngineStoppedError, RequestError
from headway.generation.collect import Choice, collect
from headway.generation.params import GenerationParams
from headway.generation.scores import ScoredPosition
from headway.generation.stream import TextStream
from headway.models.progress import Progress, on_standard_error

_T = TypeVar("_T")

Messages = Sequence[dict[str, Any]]


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
    """The answers to one prompt, and their cost in tokens."""

    choices: tuple[Completion, ...]
    prompt_token_ids: tuple[int, ...]
    num_output_tokens: int

    @property
    def text(self) -> str:
        """The text of the first answer."""
        return self.choices[0].text


class LLM:
    """A loaded model.

    Args:
        model: what ``headway serve`` takes: a path, a known name or a repository id.
        progress: takes a line for people now and then while a model is downloaded.
        settings: any setting that needs no server, by the name of its flag (``max_num_seqs=8``,
            ``dtype="bfloat16"``, …).

    Raises:
        UsageError: the model or a setting can't be used.
    """

    def __init__(
        self, model: str | None = None, *, progress: Progress = on_standard_error, **settings: Any
    ) -> None:
        self._begin(_settings(model, settings), progress)

    @classmethod
    def from_settings(cls, settings: Settings, progress: Progress = on_standard_error) -> LLM:
        """Load a model as complete settings say."""
        llm = cls.__new__(cls)
        llm._begin(settings, progress)
        return llm

    def _begin(self, settings: Settings, progress: Progress) -> None:
        # the reader is the caller itself, so what it has not read is its own memory
        server = replace(settings.server, max_buffered_events=sys.maxsize)
        self._assembly = assemble(replace(settings, server=server), progress)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="headway-llm", daemon=True)
        self._is_closed = False
        self._thread.start()
        self._loop.call_soon_threadsafe(self._assembly.engine.start)

    @property
    def assembly(self) -> Assembly:
        """The parts: tokenizer, engine, metrics, settings."""
        return self._assembly

    def generate(
        self, prompts: str | Sequence[str], params: GenerationParams | None = None
    ) -> list[Output]:
        """Complete each prompt; all of them share batches. The order is that of the prompts.

        Raises:
            RequestError: a prompt or parameter is refused; nothing else goes on running.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        return self._call(self._complete_all(texts, params or GenerationParams()))

    def chat(self, messages: str | Messages, params: GenerationParams | None = None) -> Output:
        """Answer a conversation; a string is one message of the user.

        Raises:
            RequestError: the conversation or a parameter is refused.
        """
        return self._call(self._chat(_conversation(messages), params or GenerationParams()))

    def stream(
        self, messages: str | Messages, params: GenerationParams | None = None
    ) -> Iterator[str]:
        """Answer a conversation piece by piece; the pieces add up to the text.

        Leaving the iterator before its end cancels the request.

        Raises:
            RequestError: the conversation or a parameter is refused, or ``n`` is not 1.
        """
        chosen = _one_answer(params)
        return self._iterate(self._call(self._open_chat(_conversation(messages), chosen)))

    def stream_text(self, prompt: str, params: GenerationParams | None = None) -> Iterator[str]:
        """Complete a prompt piece by piece, as :meth:`stream` does a conversation."""
        return self._iterate(self._call(self._open_text(prompt, _one_answer(params))))

    def close(self) -> None:
        """Cancel what runs and free everything. Idempotent."""
        if self._is_closed:
            return
        self._call(self._assembly.engine.stop())
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _complete_all(self, texts: list[str], params: GenerationParams) -> list[Output]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._complete(text, params)) for text in texts]
        return [task.result() for task in tasks]

    async def _complete(self, text: str, params: GenerationParams) -> Output:
        return await _read(await self._open_text(text, params))

    async def _chat(self, messages: Messages, params: GenerationParams) -> Output:
        return await _read(await self._open_chat(messages, params))

    async def _open_text(self, text: str, params: GenerationParams) -> TextStream:
        generator = self._assembly.generator
        prompt = await generator.encode(text)
        return await generator.generate(prompt, params, terms=self._assembly.terms)

    async def _open_chat(self, messages: Messages, params: GenerationParams) -> TextStream:
        generator = self._assembly.generator
        prompt = await generator.encode_chat(messages)
        return await generator.generate(
            prompt, params, terms=self._assembly.terms, param="messages"
        )

    def _iterate(self, source: TextStream) -> Iterator[str]:
        try:
            while batch := self._call(source.next_batch()):
                text = "".join(delta.text for delta in batch)
                if text:
                    yield text
        finally:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(source.cancel, "abandoned")

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the engine's event loop and wait for it."""
        if self._is_closed:
            work.close()
            raise EngineStoppedError("this LLM is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _read(stream: TextStream) -> Output:
    async with stream:
        choices = await collect(stream)
    return Output(
        tuple(map(_completion, choices)),
        stream.prompt_token_ids,
        stream.usage.num_completion_tokens,
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


def _one_answer(params: GenerationParams | None) -> GenerationParams:
    chosen = params or GenerationParams()
    if chosen.n != 1:
        raise RequestError("A stream has one answer, so n must be 1.", param="n")
    return chosen


def _conversation(messages: str | Messages) -> Messages:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


#: sections whose settings mean something without a server
_SECTIONS = ("model", "scheduler", "kv", "simulation", "journal")


def _settings(model: str | None, given: dict[str, Any]) -> Settings:
    """Return the settings: keyword arguments over environment over file, as for a command."""
    flags: dict[str, Any] = {_setting_key(name): value for name, value in given.items()}
    if model is not None:
        flags["model.path"] = model
    return load_settings(None, os.environ, flags).settings


def _setting_key(name: str) -> str:
    known = {s.flag.removeprefix("--").replace("-", "_"): s for s in all_settings()}
    known = {flag: setting for flag, setting in known.items() if setting.section in _SECTIONS}
    if name not in known:
        raise ConfigError(f"unknown setting {name}{nearest(name, known)}")
    return known[name].key
