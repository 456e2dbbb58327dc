"""Uvicorn's HTTP protocol with one more ASGI extension: resetting a connection.

Closing a connection whose client has stopped reading waits for that client. A reset does not, and
frees what is buffered.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.server.endpoint import ABORT_EXTENSION


class ResettableProtocol(HttpToolsProtocol):
    """Offers ``scope["extensions"]["headway.abort"]["abort"]``, an async function."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_lost = asyncio.Event()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT_EXTENSION: {"abort": self._abort}}

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        super().connection_lost(exc)
        self._is_lost.set()

    async def _abort(self) -> None:
        """Reset the connection; returns when it is gone."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            # linger for no time: the kernel drops what is unsent and resets
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        await self._is_lost.wait()
