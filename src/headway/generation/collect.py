"""Deltas put together again: whole choices, and several streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from headway.core.events import FinishReason
from headway.generation.scores import ScoredPosition
from headway.generation.sequence_text import TextDelta
from headway.generation.stream import TextStream, Usage


class DeltaSource(Protocol):
    """Deltas in batches."""

    async def next_batch(self) -> tuple[TextDelta, ...]:
        """Return what came since the last call; empty at the end. Safe to cancel."""
        ...


@dataclass(slots=True)
class Choice:
    """One sequence, as far as it has come."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    scores: list[ScoredPosition] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def add(self, parts: Sequence[TextDelta]) -> None:
        """Append deltas, in order."""
        self.text += "".join(part.text for part in parts)
        for part in parts:
            self.token_ids.extend(part.token_ids)
            self.offsets.extend(part.offsets)
            self.scores.extend(part.scores)
            if part.finish_reason is not None:
                self.finish_reason = part.finish_reason
                self.stop_reason = part.stop_reason


async def collect(source: DeltaSource) -> list[Choice]:
    """Read to the end and return the choices by index.

    Raises:
        GenerationError: a request did not end well.
    """
    parts: dict[int, list[TextDelta]] = {}
    while batch := await source.next_batch():
        for delta in batch:
            parts.setdefault(delta.index, []).append(delta)
    choices = [Choice(index) for index in sorted(parts)]
    for choice in choices:
        choice.add(parts[choice.index])
    return choices


def total_usage(streams: Sequence[TextStream]) -> Usage:
    """Add up the usage of several streams."""
    usages = [stream.usage for stream in streams]
    return Usage(
        sum(usage.num_prompt_tokens for usage in usages),
        sum(usage.num_completion_tokens for usage in usages),
        sum(usage.num_cached_tokens for usage in usages),
    )


class MergedStreams:
    """Several streams as one, in the order in which their deltas come. A context manager.

    Holds at most one unread batch per stream, so a slow reader slows the streams and nothing
    piles up here. The first error of any stream ends the whole.
    """

    def __init__(self, streams: Sequence[TextStream]) -> None:
        self._queue: asyncio.Queue[tuple[TextDelta, ...]] = asyncio.Queue(1)
        self._num_open = len(streams)
        self._streams = streams
        self._pumps: list[asyncio.Task[None]] = []
        self._failure: Exception | None = None

    async def next_batch(self) -> tuple[TextDelta, ...]:
        """Return the next batch of any stream; empty at the end. Safe to cancel."""
        while self._num_open and self._failure is None:
            batch = await self._queue.get()
            if batch:
                return batch
            self._num_open -= 1
        if self._failure is not None:
            raise self._failure
        return ()

    async def __aenter__(self) -> MergedStreams:
        self._pumps = [asyncio.create_task(self._pump(stream)) for stream in self._streams]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(self, stream: TextStream) -> None:
        try:
            while batch := await stream.next_batch():
                await self._queue.put(batch)
        except Exception as error:
            self._failure = error
            await self._queue.put(())
            raise
        await self._queue.put(())
