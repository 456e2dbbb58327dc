"""One connection of the load client: HTTP/1.1 on asyncio, parsed by llhttp (``httptools``).

A measuring instrument wants what client libraries hide: the moment at which bytes came, to stop
reading at once, to vanish without a word. What they add (redirects, cookies, retries, buffers in
between) it doesn't want.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from headway.bench.errors import ExchangeError, TargetError

try:
    import httptools
except ModuleNotFoundError as error:  # on Windows it isn't installed with Headway
    raise TargetError("load over HTTP needs httptools: pip install httptools") from error


class Answer(Protocol):
    """Takes an answer as it comes."""

    def on_head(self, status: int, headers: dict[str, str], /) -> None:
        """Take the status and the headers, with their names in lower case."""
        ...

    def on_body(self, data: bytes, now: float, /) -> None:
        """Take a part of the body, and when it came."""
        ...


class Connection(asyncio.Protocol):
    """Sends one request at a time and hands the answer on as it comes."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._received_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._is_lost = False
        self._num_exchanges = 0
        self._done: asyncio.Future[None] | None = None
        self._resume: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return not self._is_lost and self._done is None and self._resume is None

    async def exchange(self, request: bytes, answer: Answer, now: Callable[[], float]) -> None:
        """Send a request and hand its answer on, until it is complete.

        Raises:
            ExchangeError: the connection broke, or what came is not HTTP.
        """
        assert self._done is None, "one request at a time"
        self._now = now
        self._answer = answer
        self._headers: dict[str, str] = {}
        self._has_begun = self._has_head = False
        self._parser = httptools.HttpResponseParser(self)
        self._done = done = asyncio.get_running_loop().create_future()
        self._num_exchanges += 1
        if self._is_lost or self._transport is None:
            self._fail(self._broken("the server had closed the connection"))
        else:
            self._transport.write(request)
        try:
            await done
        finally:
            self._done = None

    def pause(self, seconds: float) -> None:
        """Stop reading for a time."""
        if self._transport is None or self._is_lost or self._resume is not None:
            return
        self._transport.pause_reading()
        self._resume = asyncio.get_running_loop().call_later(seconds, self._read_on)

    def vanish(self) -> None:
        """Close at once, whatever is under way."""
        if self._resume is not None:
            self._resume.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have another base

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._received_at = self._now()
        if self._done is None or self._done.done():
            self.vanish()  # a server that speaks unasked
            return
        self._has_begun = True
        try:
            self._parser.feed_data(data)
        except ExchangeError as error:
            self._fail(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            failure = cause if isinstance(cause, ExchangeError) else None
            self._fail(failure or ExchangeError("not HTTP", str(error)))

    def eof_received(self) -> bool:
        """Let the connection close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was under way."""
        self._is_lost = True
        if self._resume is not None:
            self._resume.cancel()
        if self._has_head_without_length():
            self.on_message_complete()
        else:
            self._fail(self._broken(str(exc) if exc else "the server closed the connection"))

    # ------------------------------------------------- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Hand the head on, unless more heads follow (100 Continue)."""
        status = self._parser.get_status_code()
        if status >= 200:
            self._has_head = True
            self._answer.on_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        """Hand a part of the body on."""
        self._answer.on_body(data, self._received_at)

    def on_message_complete(self) -> None:
        """End the exchange."""
        if not self._has_head:
            self._headers = {}
            return
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
        if not self._is_lost and not self._parser.should_keep_alive():
            self.vanish()
            self._is_lost = True

    # ------------------------------------------------- inside

    def _read_on(self) -> None:
        self._resume = None
        if self._transport is not None and not self._is_lost:
            self._transport.resume_reading()

    def _has_head_without_length(self) -> bool:
        """Whether an answer is under way that only the end of the connection ends."""
        is_open = self._done is not None and not self._done.done() and self._has_head
        return is_open and not {"content-length", "transfer-encoding"} & self._headers.keys()

    def _broken(self, detail: str) -> ExchangeError:
        if self._has_begun:
            return ExchangeError("cut off", detail)
        return ExchangeError("no answer", detail, is_untouched=self._num_exchanges > 1)

    def _fail(self, error: ExchangeError) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        self.vanish()
