"""Drives text streams to the client: whole, or as server-sent events."""

from __future__ import annotations

import asyncio
import logging
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
from headway.server.errors import INTERNAL, Problem, problem_of
from headway.server.sse import ClientStalledError, EventStream

_log = logging.getLogger(__name__)


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


async def _end_badly(events: EventStream, what: Problem, exchange: Exchange) -> None:
    exchange.record.reason = what.body.code or ""
    await events.finish([what.encode()])


async def _send_events(
    source: DeltaSource,
    streams: Sequence[TextStream],
    wire: WireFormat,
    exchange: Exchange,
) -> None:
    events = EventStream(exchange.send, exchange.stall_timeout_s)
    try:
        await _pass_on(source, wire, events, exchange.keep_alive_s)
        last = wire.closing(total_usage(streams))
    except HeadwayError as error:
        if not events.has_started:
            raise
        await _end_badly(events, problem_of(error), exchange)
    except ClientStalledError:
        raise
    except Exception:
        if not events.has_started:
            raise
        _log.exception("a stream broke off")
        await _end_badly(events, INTERNAL, exchange)
    else:
        await events.finish(last)


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
