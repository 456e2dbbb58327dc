"""API keys: pure ASGI middleware, which leaves ``http.disconnect`` visible."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.errors import error_response, problem
from headway.server.front import TENANT_KEY

GUARDED = ("/v1/", "/tokenize", "/detokenize")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class ApiKeys:
    """Lets only known keys through to the paths that do work; names the tenant by its key."""

    def __init__(self, app: ASGIApp, api_keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode("utf-8", "surrogateescape")) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or answer 401."""
        if scope["type"] == "http" and scope["path"].startswith(GUARDED):
            tenant = self._tenant(Headers(scope=scope))
            if tenant is None:
                await _unauthorized(scope)(scope, receive, send)
                return
            scope[TENANT_KEY] = tenant
        await self._app(scope, receive, send)

    def _tenant(self, headers: Headers) -> str | None:
        raw = headers.get("authorization", "").encode("latin-1")  # the bytes as they came
        scheme, _, key = raw.partition(b" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return digest.hex()[:12] if scheme.lower() == b"bearer" and any(matches) else None


def _unauthorized(scope: Scope) -> Response:
    message = "Incorrect API key: send one in the header 'Authorization: Bearer KEY'."
    headers = {"WWW-Authenticate": "Bearer"}
    return error_response(scope, problem(401, message, code="invalid_api_key", headers=headers))
