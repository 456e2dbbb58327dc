"""The frame around every endpoint that takes JSON and works for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from headway.config import ServerSettings
from headway.generation.stream import TextStream
from headway.generation.terms import Terms
from headway.server.access import record_of
from headway.server.body import ClientGoneError, decode, read_body
from headway.server.disconnect import run_while_connected
from headway.server.front import Front
from headway.server.placement import CLASS_HEADER, Placement
from headway.server.requests import GenerationRequest
from headway.server.sse import ClientStalledError, send_within

T = TypeVar("T", bound=msgspec.Struct)

#: Time in which the body of a request must have arrived.
BODY_TIMEOUT_S = 60.0

#: The header that says to how many output tokens the class cuts an answer.
CLAMP_HEADER = "x-headway-max-tokens"

#: Key of an ASGI extension (see :mod:`headway.server.protocol`) that resets the connection.
ABORT_EXTENSION = "headway.abort"


class Exchange:
    """One request and the way back to its client. ``class_name`` is known once it is placed."""

    def __init__(self, scope: Scope, send: Send, settings: ServerSettings) -> None:
        self.scope = scope
        self.record = record_of(scope)
        self.class_name = ""
        self.send = send
        self.stall_timeout_s = settings.stream_stall_timeout_s
        self.keep_alive_s = settings.sse_keep_alive_s

    def place(self, placement: Placement, request: GenerationRequest) -> Terms:
        """Return the terms of the request, and name its class in whatever is answered.

        Raises:
            RequestError: it names a class that does not exist, or a value means nothing.
        """
        terms = placement.terms(self.scope, request)
        self.class_name = placement.class_of(terms)
        self.record.headers[CLASS_HEADER] = self.class_name
        return terms

    def report_clamp(self, streams: Iterable[TextStream]) -> None:
        """Say in the response's headers to how many output tokens the class cuts the answers."""
        each = (stream.clamped_max_tokens for stream in streams)
        clamps = [clamp for clamp in each if clamp is not None]
        if clamps:
            self.record.headers[CLAMP_HEADER] = str(min(clamps))

    async def respond(self, body: bytes) -> None:
        """Send a whole JSON response.

        Raises:
            ClientStalledError: the client does not read it.
        """
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send_within(self.send, start, self.stall_timeout_s)
        end = {"type": "http.response.body", "body": body}
        await send_within(self.send, end, self.stall_timeout_s)


Answer = Callable[[Front, T, Exchange], Awaitable[None]]


class JsonEndpoint(Generic[T]):
    """An ASGI application: reads a request of type ``T`` and answers while the client is there."""

    def __init__(self, front: Front, body_type: type[T], answer: Answer[T]) -> None:
        self._front = front
        self._decoder = msgspec.json.Decoder(body_type)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        record = record_of(scope)
        record.is_work = True
        try:
            if not await self._serve(scope, receive, send):
                record.abandon("the client left")
        except ClientGoneError:
            record.abandon("the client left before its request was complete")
        except ClientStalledError:
            record.abandon("the client stopped reading")
            await abort_connection(scope)
        except asyncio.CancelledError:
            record.abandon("the server ended before the client had read its answer")
            if not await abort_connection(scope):
                raise

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> bool:
        settings = self._front.settings
        body = await read_body(scope, receive, settings.max_body_bytes, BODY_TIMEOUT_S)
        request = decode(body, self._decoder)
        return await run_while_connected(
            self._run(request, Exchange(scope, send, settings)), receive
        )

    async def _run(self, request: T, exchange: Exchange) -> None:
        await self._answer(self._front, request, exchange)


async def abort_connection(scope: Scope) -> bool:
    """Reset the connection, so that unread bytes are freed at once, if the server can do that."""
    extension = scope.get("extensions", {}).get(ABORT_EXTENSION)
    if extension is not None:
        await extension["abort"]()
    return extension is not None
