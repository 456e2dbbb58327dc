"""API keys and request ids: pure ASGI middleware, which leaves ``http.disconnect`` visible."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.errors import error_response, problem
from headway.server.front import TENANT_KEY

GUARDED = ("/v1/", "/tokenize", "/detokenize")
MAX_REQUEST_ID_CHARACTERS = 128
REQUEST_ID_KEY = "headway.request_id"
_UNSAFE = re.compile(r"[^\x21-\x7e]")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class ApiKeys:
    """Lets only known keys through to the paths that do work; names the tenant by its key."""

    def __init__(self, app: ASGIApp, api_keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or answer 401."""
        if scope["type"] == "http" and scope["path"].startswith(GUARDED):
            tenant = self._tenant(Headers(scope=scope))
            if tenant is None:
                await _unauthorized()(scope, receive, send)
                return
            scope[TENANT_KEY] = tenant
        await self._app(scope, receive, send)

    def _tenant(self, headers: Headers) -> str | None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return digest.hex()[:12] if scheme.lower() == "bearer" and any(matches) else None


def _unauthorized() -> ASGIApp:
    message = "Incorrect API key: send one in the header 'Authorization: Bearer KEY'."
    headers = {"WWW-Authenticate": "Bearer"}
    return error_response(problem(401, message, code="invalid_api_key", headers=headers))


def safe_request_id(text: str) -> str:
    """Return what may be echoed of a client's id: printable ASCII of bounded length."""
    return _UNSAFE.sub("", text[:MAX_REQUEST_ID_CHARACTERS])


class RequestIds:
    """Gives every response an ``X-Request-Id``: the client's own, or a new one.

    It is an echo for the client's logs, never a key: internal ids are Headway's own.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and add the header."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[REQUEST_ID_KEY] = safe_request_id(Headers(scope=scope).get("x-request-id", ""))
        made = secrets.token_hex(16)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = scope[REQUEST_ID_KEY] or made
            await send(message)

        await self._app(scope, receive, send_with_id)
