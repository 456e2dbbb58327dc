"""The output queue of one request: bounded, filled by the engine, drained by one reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from headway.core.events import TERMINAL, Admitted, Cancelled, Event
from headway.core.plan import RequestId

#: how many times ``max_events`` a reader that waits may find at once
BURST = 16


class RequestStream:
    """Async iterator over the events of one request, in batches.

    Each ``async for`` turn yields everything that came since the last one; iteration ends after
    the batch with the terminal event. While the reader is busy elsewhere, at most ``max_events``
    are kept for it: one that falls further behind loses the request, so that it can hold neither
    memory nor KV blocks. A reader that stands here waiting may find more, since the event loop
    itself may have been late, but never more than ``BURST`` times as many. Used from the event
    loop only.
    """

    def __init__(
        self,
        request_id: RequestId,
        max_events: int,
        cancel: Callable[[RequestId, str], None],
        stop: Callable[[RequestId, int], None],
    ) -> None:
        self.request_id = request_id
        self.clamped_max_tokens: int | None = None  # known once it is admitted
        self._max_events = max_events
        self._cancel = cancel
        self._stop = stop
        self._buffer: list[Event] = []
        self._ready = asyncio.Event()
        self._is_reader_here = True  # until it has read once, it can't be late
        self._is_cancelled = False
        self._has_lost_events = False
        self._has_ended = False  # the terminal event is in the buffer, or was read
        self._is_exhausted = False  # the terminal event was read

    @property
    def has_ended(self) -> bool:
        """Whether the request has reached its terminal event."""
        return self._has_ended

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        if self._is_exhausted:
            raise StopAsyncIteration
        self._is_reader_here = True
        try:
            await self._ready.wait()
        finally:
            self._is_reader_here = False
        self._ready.clear()
        batch, self._buffer = tuple(self._buffer), []
        self._is_exhausted = self._has_ended
        return batch

    def cancel(self, reason: str) -> None:
        """Ask the engine to drop the request; its Cancelled event follows. Idempotent."""
        if not self._has_ended and not self._is_cancelled:
            self._is_cancelled = True
            self._cancel(self.request_id, reason)

    def finish(self, index: int) -> None:
        """Tell the engine that a stop string ended sequence ``index``."""
        if not self._has_ended:
            self._stop(self.request_id, index)

    def put(self, event: Event) -> None:
        """Deliver an event; called by the engine's front, on the event loop."""
        if self._has_ended or isinstance(event, Admitted):
            return
        self._has_ended = isinstance(event, TERMINAL)
        if self._has_ended:
            # a request that ends by itself before the cancellation is served has a gap all the same
            self._buffer.append(self._too_slow() if self._has_lost_events else event)
        elif self._has_lost_events or self._is_full():
            self._has_lost_events = True
            self.cancel("client_too_slow")
        else:
            self._buffer.append(event)
        self._ready.set()

    def _too_slow(self) -> Cancelled:
        return Cancelled(self.request_id, "client_too_slow")

    def _is_full(self) -> bool:
        most = self._max_events * (BURST if self._is_reader_here else 1)
        return len(self._buffer) >= most

    async def __aenter__(self) -> RequestStream:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel("abandoned")
