"""Whoever left gets no more work done: the client is watched while its request is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Receive

from headway.generation.stream import TextStream
from headway.server.sse import ClientStalledError


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def run_while_connected(work: Coroutine[Any, Any, None], receive: Receive) -> bool:
    """Run ``work``, and cancel it when the client leaves. The body must have been read.

    Returns:
        whether the work was done before the client left.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        is_done = task.done()
    finally:
        await _stop(task, watch)
    if task.cancelled():
        return False
    task.result()
    return is_done


@asynccontextmanager
async def abandoning() -> AsyncIterator[list[TextStream]]:
    """Yield a list for text streams; on exit those that still run are cancelled, and told why."""
    streams: list[TextStream] = []
    reason = "abandoned"
    try:
        yield streams
    except asyncio.CancelledError:
        reason = "client_disconnected"
        raise
    except ClientStalledError:
        reason = "client_stalled"
        raise
    finally:
        for stream in streams:
            stream.cancel(reason)
