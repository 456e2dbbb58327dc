"""API keys: pure ASGI middleware, which leaves ``http.disconnect`` visible."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.config import Settings
from headway.server.errors import error_response, problem
from headway.server.placement import TENANT_KEY

GUARDED = ("/v1/", "/tokenize", "/detokenize")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def tenants_by_key(settings: Settings) -> dict[bytes, str]:
    """Return the tenant for the digest of each key: its name, or a beginning of the digest."""
    tenants = {}
    for key in settings.server.api_key:
        digest = _digest(key.encode("utf-8", "surrogateescape"))
        tenants[digest] = digest.hex()[:12]
    for name, tenant in settings.tenants.items():
        for key in tenant.api_key:
            tenants[_digest(key.encode("utf-8", "surrogateescape"))] = name
    return tenants


class ApiKeys:
    """Lets only known keys through to the paths that do work; names the tenant by its key."""

    def __init__(self, app: ASGIApp, tenants: Mapping[bytes, str]) -> None:
        self._app = app
        self._tenants = tenants

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
        if scheme.lower() != b"bearer":
            return None
        # the time of this look-up tells of digests, from which nobody gets back to a key
        return self._tenants.get(_digest(key.strip()))


def _unauthorized(scope: Scope) -> Response:
    message = "Incorrect API key: send one in the header 'Authorization: Bearer KEY'."
    headers = {"WWW-Authenticate": "Bearer"}
    return error_response(scope, problem(401, message, code="invalid_api_key", headers=headers))
