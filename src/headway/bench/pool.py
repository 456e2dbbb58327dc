"""Connections: as many as there are requests at once, used again where the server keeps them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from headway.bench.connection import Answer, Connection
from headway.bench.errors import ExchangeError
from headway.bench.target import Address

#: bytes that the kernel keeps for a reader that is going to stall, so that the server notices
_SMALL_BUFFER = 4096

Now = Callable[[], float]


class Pool:
    """Opens connections to one server.

    Args:
        addresses: of the server; the first that can be reached is taken.
        connect_timeout_s: how long to wait for a connection.
    """

    def __init__(self, addresses: Sequence[Address], connect_timeout_s: float = 10.0) -> None:
        self._addresses = addresses
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[Connection] = []
        self._opened: set[Connection] = set()

    async def exchange(self, request: bytes, answer: Answer, now: Now) -> None:
        """Send a request and hand its answer on; a connection that had been closed is replaced.

        Raises:
            ExchangeError: there is no connection, or no complete answer.
        """
        while True:
            connection = self._take() or await self.open(now)
            try:
                await self.over(connection, request, answer, now)
                return
            except ExchangeError as error:
                if not error.is_untouched:
                    raise

    async def over(
        self,
        connection: Connection,
        request: bytes,
        answer: Answer,
        now: Now,
        *,
        keep: bool = True,
    ) -> None:
        """Send a request over this connection; keep it for others if it lasts.

        If the request fails or is left early, it is closed.
        """
        try:
            await connection.exchange(request, answer, now)
        except BaseException:
            connection.vanish()
            self._opened.discard(connection)
            raise
        if keep and connection.is_usable:
            self._idle.append(connection)
        else:
            connection.vanish()
            self._opened.discard(connection)

    async def open(self, now: Now, *, small_buffer: bool = False) -> Connection:
        """Open a connection.

        Raises:
            ExchangeError: none of the addresses can be reached.
        """
        failure: OSError | None = None
        for address in self._addresses:
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    connection = await _connect(address, now, small_buffer)
            except OSError as error:  # TimeoutError is one
                failure = error
                continue
            self._opened.add(connection)
            return connection
        detail = failure.strerror if failure is not None and failure.strerror else "timed out"
        raise ExchangeError("no connection", detail)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._opened:
            connection.vanish()
        self._opened.clear()
        self._idle.clear()

    def _take(self) -> Connection | None:
        """Return the connection that was used last: it is the least likely to be closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            self._opened.discard(connection)
        return None


async def _connect(address: Address, now: Now, small_buffer: bool) -> Connection:
    loop = asyncio.get_running_loop()
    endpoint = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        endpoint.setblocking(False)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if small_buffer:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        await loop.sock_connect(endpoint, address.sockaddr)
        name = address.server_name if address.tls is not None else None
        _, connection = await loop.create_connection(
            lambda: Connection(now), sock=endpoint, ssl=address.tls, server_hostname=name
        )
    except BaseException:
        endpoint.close()
        raise
    return connection
