"""How a request that was admitted can still end badly."""

from __future__ import annotations

from headway.core.events import Cancelled, Event, Expired, ExpireReason, Failed, Rejected
from headway.errors import GenerationError


def _failed(event: Failed) -> GenerationError:
    return GenerationError(event.message, code="engine_error", status=500, retry=False)


def _cancelled(event: Cancelled) -> GenerationError:
    if event.reason == "client_too_slow":
        message = "The client read too slowly, so the request was stopped."
        return GenerationError(message, code=event.reason, status=503, retry=False)
    why = "the server is shutting down" if event.reason == "server_shutdown" else event.reason
    message = f"The request was stopped: {why}."
    return GenerationError(message, code="cancelled", status=503, retry=True)


def _expired(event: Expired) -> GenerationError:
    if event.reason is ExpireReason.QUEUE_TIMEOUT:
        message = f"The request waited {event.waited_s:.1f} s in the queue, longer than it may."
        return GenerationError(message, code=event.reason.value, status=503, retry=True)
    message = f"The request took {event.waited_s:.1f} s, longer than it may."
    return GenerationError(message, code=event.reason.value, status=408, retry=False)


def error_of(event: Event) -> GenerationError | None:
    """Return what a terminal event means to the client; None if it is no failure."""
    match event:
        case Failed():
            return _failed(event)
        case Cancelled():
            return _cancelled(event)
        case Expired():
            return _expired(event)
        case Rejected():
            return GenerationError(event.message, code=event.reason.value, status=503, retry=True)
        case _:
            return None


def unfinished(num_sequences: int) -> GenerationError:
    """Return what it means that a request finished and so many of its sequences did not."""
    message = f"The engine lost the end of {num_sequences} sequence(s)."
    return GenerationError(message, code="engine_error", status=500, retry=False)
