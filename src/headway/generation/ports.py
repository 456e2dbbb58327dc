"""What generation needs from the engine, as narrow as it is."""

from __future__ import annotations

from typing import Protocol

from headway.core.events import Event
from headway.core.plan import RequestId
from headway.core.request import Request


class EventSource(Protocol):
    """The events of one request, in batches; ends after the batch with the terminal event."""

    @property
    def request_id(self) -> RequestId:
        """Headway's own id of the request."""
        ...

    @property
    def clamped_max_tokens(self) -> int | None:
        """To how many output tokens the class has cut the answer; None if it has not."""
        ...

    async def __anext__(self) -> tuple[Event, ...]:
        """Return everything that came since the last call; safe to cancel."""
        ...

    def cancel(self, reason: str) -> None:
        """Drop the request. Idempotent."""
        ...

    def finish(self, index: int) -> None:
        """End sequence ``index`` well: its text is complete."""
        ...


class RequestSink(Protocol):
    """Takes requests."""

    async def submit(self, request: Request) -> EventSource:
        """Queue a request; returns once it is admitted.

        Raises:
            RequestError: it is refused.
            EngineStoppedError: no work is taken.
        """
        ...
