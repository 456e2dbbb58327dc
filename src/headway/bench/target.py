"""Where the server is: its URL, taken apart, and its address, looked up once."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from headway.bench.errors import TargetError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A server with OpenAI's API.

    Attributes:
        host: as in the URL.
        port: of it.
        prefix: path before ``/v1``; without a slash at its end.
        tls: whether the connection is encrypted.
    """

    host: str
    port: int
    prefix: str = ""
    tls: bool = False

    @property
    def authority(self) -> str:
        """The value of the header ``Host``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"
        )

    @property
    def url(self) -> str:
        """The URL, in its shortest form."""
        return f"http{'s' if self.tls else ''}://{self.authority}{self.prefix}"

    def path(self, rest: str) -> str:
        """Return the path of an endpoint (``models``)."""
        return f"{self.prefix}/v1/{rest}"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect to."""

    family: int
    sockaddr: tuple[object, ...]
    tls: ssl.SSLContext | None
    server_name: str


def parse_url(url: str) -> Target:
    """Take the URL of a server apart; ``/v1`` at its end may be there or not.

    Raises:
        TargetError: it is none.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise TargetError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise TargetError(f"{url!r} is no URL of a server: use http://HOST:PORT")
    if parts.query or parts.fragment or parts.username is not None:
        raise TargetError(f"{url!r}: a key goes into --api-key, and a query nowhere")
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    chosen = _PORTS[parts.scheme] if port is None else port
    return Target(parts.hostname, chosen, prefix, parts.scheme == "https")


async def resolve(target: Target) -> tuple[Address, ...]:
    """Look the host up, once for all connections.

    Raises:
        TargetError: there is no such host.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TargetError(f"{target.host} is no known host: {error.strerror}") from error
    context = ssl.create_default_context() if target.tls else None
    return tuple(Address(each[0], each[4], context, target.host) for each in found)
