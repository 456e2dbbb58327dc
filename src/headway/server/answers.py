"""Drives text streams to the client: whole, or as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from headway.errors import HeadwayError
from headway.generation.collect import (
    Choice,
    DeltaSource,
    MergedStreams,
    collect,
    total_usage,
)
from headway.generation.sequence_text import TextDelta
from headway.generation.stream import TextStream, Usage
from headway.server.endpoint import Exchange
from headway.server.errors import problem_of
from headway.server.sse import EventStream


class WireFormat(Protocol):
    """How one endpoint writes its answers."""

    def chunks(self, deltas: Sequence[TextDelta]) -> list[bytes]:
        """Return the events for a batch, the opening ones included the first time."""
        ...

    def closing(self, usage: Usage) -> list[bytes]:
        """Return the events after the last delta."""
        ...

    def whole(self, choices: list[Choice], usage: Usage) -> bytes:
        """Return the body of an answer that is not streamed."""
        ...


async def _next(source: DeltaSource, timeout_s: float) -> tuple[TextDelta, ...] | None:
    """Return the next batch, or None if nothing came in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await source.next_batch()
    except TimeoutError:
        return None


async def _pass_on(
    source: DeltaSource, wire: WireFormat, events: EventStream, keep_alive_s: float
) -> None:
    while True:
        batch = await _next(source, keep_alive_s)
        if batch is None:
            await events.keep_alive()
        elif batch:
            await events.write(wire.chunks(batch))
        else:
            return


async def _send_events(
    source: DeltaSource,
    streams: Sequence[TextStream],
    wire: WireFormat,
    exchange: Exchange,
) -> None:
    events = EventStream(exchange.send, exchange.stall_timeout_s)
    try:
        await _pass_on(source, wire, events, exchange.keep_alive_s)
    except HeadwayError as error:
        if not events.has_started:
            raise
        problem = problem_of(error)
        exchange.record.reason = problem.body.code or ""
        await events.finish([problem.encode()])
    else:
        await events.finish(wire.closing(total_usage(streams)))


async def _send(
    source: DeltaSource,
    streams: Sequence[TextStream],
    wire: WireFormat,
    exchange: Exchange,
    as_events: bool,
) -> None:
    if as_events:
        await _send_events(source, streams, wire, exchange)
    else:
        choices = await collect(source)
        await exchange.respond(wire.whole(choices, total_usage(streams)))


async def send_answer(
    streams: Sequence[TextStream],
    wire: WireFormat,
    exchange: Exchange,
    *,
    as_events: bool,
) -> None:
    """Send what the streams give, until all have ended.

    A failure before the first byte is raised; later it becomes an event, and the stream ends.

    Raises:
        GenerationError: a request did not end well.
        ClientStalledError: the client does not read.
    """
    if len(streams) == 1:
        await _send(streams[0], streams, wire, exchange, as_events)
        return
    async with MergedStreams(streams) as merged:
        await _send(merged, streams, wire, exchange, as_events)
