"""One count and, where wanted, one line of log for each HTTP request that ends.

The line joins the id that the client knows with Headway's own, and says nothing of prompts or
answers. Work that was refused, failed or lost its client always gets one.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.generation.stream import TextStream

_log = logging.getLogger(__name__)

MAX_REQUEST_ID_CHARACTERS = 128
MAX_PATH_CHARACTERS = 200

#: The route of all paths that do not exist: label values must be bounded.
OTHER_ROUTE = "other"

#: Stands for the response that nobody waited for, as in nginx.
CLIENT_GONE = 499

_RECORD_KEY = "headway.record"
_UNSAFE = re.compile(r"[^\x21-\x7e]")


class RequestCounter(Protocol):
    """Counts HTTP requests."""

    def on_http_request(self, route: str, status: int) -> None:
        """A request ended."""
        ...


@dataclass(slots=True)
class Record:
    """What is remembered of one HTTP request until it ends.

    Attributes:
        request_id: the ``X-Request-Id`` of the response, for the client's bookkeeping; never a key.
        is_clients: whether the client gave that id.
        is_work: whether the request is for an endpoint that works for its answer.
        status: of the response; 0 before it starts.
        reason: the code of the error, or why nobody got an answer; empty if all went well.
        streams: the text streams that were submitted for it.
        headers: what the response's headers say beside, whatever it turns out to be.
    """

    request_id: str
    is_clients: bool
    is_work: bool = False
    status: int = 0
    reason: str = ""
    streams: Sequence[TextStream] = ()
    headers: dict[str, str] = field(default_factory=dict)

    def echo(self, request_id: str | None) -> None:
        """Take the id that stands in the body, where the header has none."""
        safe = safe_request_id(request_id or "")
        if safe and not self.is_clients:
            self.request_id, self.is_clients = safe, True

    def abandon(self, reason: str) -> None:
        """Note that nobody gets the answer."""
        self.status, self.reason = CLIENT_GONE, reason


def safe_request_id(text: str) -> str:
    """Return what may be echoed of a client's id: printable ASCII of bounded length."""
    return _UNSAFE.sub("", text[:MAX_REQUEST_ID_CHARACTERS])


def record_of(scope: Scope) -> Record:
    """Return the record of a request that came through :class:`Access`."""
    record: Record = scope[_RECORD_KEY]
    return record


class Access:
    """Middleware around everything: gives each request its record, and reports it at the end.

    Args:
        app: what answers.
        counter: is told of every request.
        paths: the paths that exist, as routes have them; other paths count together.
        logs_all: whether requests that went well are logged too.
    """

    def __init__(
        self, app: ASGIApp, counter: RequestCounter, paths: Iterable[str], logs_all: bool
    ) -> None:
        self._app = app
        self._counter = counter
        self._paths = frozenset(path for path in paths if "{" not in path)
        self._patterns = {
            path.partition("{")[0]: path.replace(":path", "") for path in paths if "{" in path
        }
        self._logs_all = logs_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, add ``X-Request-Id`` and the record's headers, and report."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = scope[_RECORD_KEY] = _new_record(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update({**record.headers, "x-request-id": record.request_id})
            await send(message)

        started_s = time.perf_counter()
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            record.status = record.status or 500  # what raises before its response gets this one
            self._counter.on_http_request(self._route(scope["path"]), record.status)
            if self._logs_all or (record.is_work and (record.status >= 400 or record.reason)):
                _log_line(scope, record, time.perf_counter() - started_s)

    def _route(self, path: str) -> str:
        if path in self._paths:
            return path
        patterns = self._patterns.items()
        found = (route for prefix, route in patterns if path.startswith(prefix))
        return next(found, OTHER_ROUTE)


def _new_record(scope: Scope) -> Record:
    given = safe_request_id(Headers(scope=scope).get("x-request-id", ""))
    return Record(given or secrets.token_hex(16), is_clients=bool(given))


def _log_line(scope: Scope, record: Record, elapsed_s: float) -> None:
    client = (scope.get("client") or ("-",))[0]
    path = quote(scope["path"])[:MAX_PATH_CHARACTERS]
    outcome = f"{record.status} {record.reason}".rstrip()
    ids = " ".join(filter(None, (record.request_id, _internal_ids(record.streams))))
    line = '%s - "%s %s" %s, %.3f s, %s'
    _log.info(line, client, scope["method"], path, outcome, elapsed_s, ids)


def _internal_ids(streams: Sequence[TextStream]) -> str:
    """Return Headway's own id of the first stream, and how many more there are."""
    ids = [stream.request_id for stream in streams]
    return f"{ids[0]} and {len(ids) - 1} more" if len(ids) > 1 else "".join(ids)
