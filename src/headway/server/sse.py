"""Server-sent events, as the SDKs of OpenAI read them.

Only ``data: {json}``, ``data: [DONE]`` and comments are ever sent: an event without data, or with
``id:`` or ``retry:`` alone, breaks clients. The status line is held back until there is something
to say, so that a request that dies in the queue still gets a real status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.types import Message, Send

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ClientStalledError(Exception):
    """The client has not read what it was sent for too long."""


async def send_within(send: Send, message: Message, timeout_s: float) -> None:
    """Send, and wait while the client's side of the connection is full.

    Raises:
        ClientStalledError: nothing moved for ``timeout_s`` seconds.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await send(message)
    except TimeoutError:
        raise ClientStalledError from None


class EventStream:
    """One response of server-sent events; starts with the first write."""

    def __init__(self, send: Send, stall_timeout_s: float) -> None:
        self._send = send
        self._stall_timeout_s = stall_timeout_s
        self.has_started = False

    async def write(self, payloads: Iterable[bytes]) -> None:
        """Send each payload (a JSON document) as an event."""
        body = b"".join(b"data: %b\n\n" % payload for payload in payloads)
        if body:
            await self._send_body(body)

    async def keep_alive(self) -> None:
        """Send a comment, which clients skip and proxies count as life."""
        await self._send_body(b": keep-alive\n\n")

    async def finish(self, last: Iterable[bytes] = ()) -> None:
        """Send ``last`` and the end mark, and close."""
        await self.write([*last, b"[DONE]"])
        await self._send_message({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_body(self, body: bytes) -> None:
        if not self.has_started:
            self.has_started = True
            await self._send_message(
                {"type": "http.response.start", "status": 200, "headers": HEADERS}
            )
        await self._send_message({"type": "http.response.body", "body": body, "more_body": True})

    async def _send_message(self, message: Message) -> None:
        await send_within(self._send, message, self._stall_timeout_s)
