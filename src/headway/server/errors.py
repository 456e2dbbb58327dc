"""Errors on the wire: OpenAI's envelope, and which status each exception gets.

``{"error": {"message", "type", "param", "code"}}``. Clients retry 408, 409, 429 and 5xx on their
own, so everything that would fail again must have another status.
"""

from __future__ import annotations

import math

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from headway.errors import EngineStoppedError, GenerationError, HeadwayError, RequestError
from headway.server.access import record_of

MAX_MESSAGE_CHARACTERS = 600
MAX_PARAM_CHARACTERS = 100

#: When it is worth trying again where nobody knows better: another replica, or the next start.
RETRY_AFTER_S = 5.0


class ErrorBody(msgspec.Struct, frozen=True):
    """What is wrong, in OpenAI's words. ``code`` is stable; ``message`` is for people."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """The whole body of an error response."""

    error: ErrorBody


class Problem(msgspec.Struct, frozen=True):
    """An error ready to be sent: its body, status and headers."""

    status: int
    body: ErrorBody
    headers: dict[str, str] = {}

    def encode(self) -> bytes:
        """Return the envelope as JSON."""
        return msgspec.json.encode(ErrorEnvelope(self.body))


def shorten(text: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """Cut long text in the middle, and replace what is not valid Unicode."""
    clean = text.encode("utf-8", "replace").decode()
    if len(clean) <= limit:
        return clean
    half = (limit - 5) // 2
    return f"{clean[:half]} ... {clean[-half:]}"


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    if status == 503:
        return "service_unavailable"
    if status == 408:
        return "timeout_error"
    return "invalid_request_error" if status < 500 else "server_error"


def problem(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Problem:
    """Build an error of bounded size."""
    param = None if param is None else shorten(param, MAX_PARAM_CHARACTERS)
    body = ErrorBody(shorten(message), _type_of(status), param, code)
    return Problem(status, body, headers or {})


#: A bug: nothing of what is inside is told.
INTERNAL = problem(500, "Internal error.", code="internal_error")


def retry_after(seconds: float | None) -> dict[str, str]:
    """Return the headers that say when to come back; none for None."""
    if seconds is None or not math.isfinite(seconds):
        return {}
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def problem_of(error: HeadwayError) -> Problem:
    """Say how an exception is told to the client."""
    match error:
        case RequestError():
            headers = retry_after(error.retry_after_s)
            return problem(
                error.status, str(error), param=error.param, code=error.code, headers=headers
            )
        case EngineStoppedError():
            message = f"The server takes no work now: {error}."
            return problem(503, message, code="unavailable", headers=retry_after(RETRY_AFTER_S))
        case GenerationError():
            headers = retry_after(RETRY_AFTER_S) if error.retry else {"x-should-retry": "false"}
            message = "Computing the request failed." if error.status == 500 else str(error)
            return problem(error.status, message, code=error.code, headers=headers)
        case _:
            return INTERNAL


def error_response(scope: Scope, p: Problem) -> Response:
    """Return a problem as a JSON response, and note it for the log."""
    record_of(scope).reason = p.body.code or ""
    return Response(p.encode(), p.status, p.headers, media_type="application/json")


HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what routing refuses (404, 405) in the envelope."""
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code == 404:
        message = f"Unknown request URL: {request.method} {shorten(request.url.path, 100)}."
    headers = dict(error.headers or {})
    p = problem(error.status_code, message, code=HTTP_CODES.get(error.status_code), headers=headers)
    return error_response(request.scope, p)


async def on_internal_error(request: Request, _error: Exception) -> Response:
    """Answer an unforeseen exception without telling what is inside."""
    return error_response(request.scope, INTERNAL)
