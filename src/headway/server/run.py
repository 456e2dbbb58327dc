"""Runs the application: listen, say so, and stop without breaking promises.

The port is bound before the model is loaded and listened on after it: until then connections are
refused. On the first SIGTERM or SIGINT the server goes on listening but takes no work (503 with
Retry-After, ``/readyz`` 503), finishes what runs for at most ``drain_timeout_s``, and exits. A
second signal ends it at once. If the engine fails, the process ends with code 1, for a supervisor
to start a new one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, NoReturn

import uvicorn
from starlette.types import ASGIApp

from headway.config.settings import ServerSettings
from headway.errors import UsageError
from headway.server.supervisor import RunnableEngine, Supervisor

#: Time that clients get to read the last bytes when everything has ended.
GOODBYE_S = 5

#: Connections that may wait to be accepted.
BACKLOG = 2048

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the server ended; see :class:`headway.server.supervisor.Supervisor`."""

    exit_code: int
    is_clean: bool


class _Server(uvicorn.Server):
    """Uvicorn's server, with signals left to :class:`Supervisor`; says when it has started."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture nothing."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and let clients read their last bytes unless that is forbidden."""
        if self.force_exit:
            self._drop_connections()
        await super().shutdown(sockets)

    def end(self, *, at_once: bool = False) -> None:
        """Leave the main loop, and shut down."""
        self.should_exit = True
        if at_once:
            self.force_exit = True
            self._drop_connections()

    def _drop_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def bind(settings: ServerSettings) -> socket.socket:
    """Bind the socket, so that the port is taken, without listening on it yet.

    Raises:
        UsageError: the address can't be had.
    """
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror or error}") from error
    try:
        _bind(listener, (host, port))
    except OSError as error:
        listener.close()
        raise _cannot_listen(f"{host}:{port}", error) from error
    listener.setblocking(False)
    return listener


def _bind(listener: socket.socket, address: tuple[str, int]) -> None:
    """Bind exclusively if possible, else beside connections that an earlier server left behind.

    Two sockets that both may reuse an address can be bound to it as long as neither listens: a
    second server would learn only after it has loaded its model that the port is taken.
    """
    try:
        listener.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)


def _listen(listener: socket.socket) -> None:
    # its connections inherit this, and may then linger without keeping the next server out
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _cannot_listen(f"{host}:{port}", error) from error


def _cannot_listen(address: str, error: OSError) -> UsageError:
    is_taken = error.errno == errno.EADDRINUSE
    hint = "choose another with --port" if is_taken else "check --host and --port"
    return UsageError(f"can't listen on {address}: {error.strerror}; {hint}")


def url_of(listener: socket.socket) -> str:
    """Return the URL under which a bound socket is reached."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def ready_text(url: str, model: str, computing: Mapping[str, str]) -> str:
    """Return the lines that say that the server is ready, by what, and how to try it."""
    chosen = ", ".join(f"{name} {choice}" for name, choice in computing.items())
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (
        f"headway: ready at {url} (model {model}; {chosen})\n"
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n"
    )


def _protocol() -> type[asyncio.Protocol] | Literal["h11"]:
    try:
        from headway.server.protocol import ResettableProtocol
    except ImportError:  # httptools does not exist for this platform
        return "h11"
    return ResettableProtocol


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the server's event loop; None is asyncio's own."""
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for this platform
        return None
    return uvloop.new_event_loop


def make_server(app: ASGIApp, settings: ServerSettings, announce: Callable[[], None]) -> _Server:
    """Return the HTTP server, not yet running. Logging is whatever the process has set up."""
    config = uvicorn.Config(
        app,
        http=_protocol(),
        timeout_keep_alive=settings.keep_alive_timeout_s,
        timeout_graceful_shutdown=GOODBYE_S,
        backlog=BACKLOG,
        access_log=False,  # headway.server.access knows more
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
    )
    return _Server(config, announce)


async def serve_async(
    app: ASGIApp,
    engine: RunnableEngine,
    settings: ServerSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> Ending:
    """Do what :func:`serve` does but end the process, on the event loop of the main thread."""
    _listen(listener)
    server = make_server(app, settings, partial(announce, url_of(listener)))
    supervisor = Supervisor(server, engine, settings.drain_timeout_s)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, supervisor.on_signal)
    engine.start()
    watching = asyncio.create_task(supervisor.watch())
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    return Ending(supervisor.exit_code, supervisor.is_clean)


def serve(
    app: ASGIApp,
    engine: RunnableEngine,
    settings: ServerSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> int:
    """Serve until a signal or the engine's end.

    If something is left that can't be stopped, this does not return but ends the process.

    Args:
        app: from :func:`headway.server.app.create_app`.
        engine: not yet started.
        settings: time-outs.
        listener: from :func:`bind`.
        announce: called with the URL once connections are accepted.

    Returns:
        the exit code: 0 after a full drain, 1 if work was cut off or the engine failed.

    Raises:
        UsageError: another process listens on the port since it was bound.
    """
    main = serve_async(app, engine, settings, listener, announce)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        ending = runner.run(main)
        if not ending.is_clean:
            _end_process(ending.exit_code)
    return ending.exit_code


def _end_process(exit_code: int) -> NoReturn:
    """End without waiting for threads, as the interpreter would: one of them may hang for ever."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    os._exit(exit_code)
