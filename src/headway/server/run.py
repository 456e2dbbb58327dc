"""Runs the application: listen, say so, and stop without breaking promises.

On the first SIGTERM or SIGINT the server goes on listening but takes no work (503 with
Retry-After, ``/readyz`` 503), finishes what runs for at most ``drain_timeout_s``, and exits. A
second signal ends it at once. If the engine fails, the process ends with code 1, for a supervisor
to start a new one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Literal, Protocol

import uvicorn
from starlette.types import ASGIApp

from headway.config.settings import ServerSettings
from headway.errors import UsageError
from headway.server.front import EngineView

_log = logging.getLogger(__name__)

#: Time that clients get to read the last bytes when everything has ended.
GOODBYE_S = 5

#: How often the engine's state is looked at.
WATCH_INTERVAL_S = 0.5

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunnableEngine(EngineView, Protocol):
    """An engine that can be started and stopped."""

    def start(self) -> None:
        """Begin to take work; called on the event loop."""
        ...

    def begin_drain(self) -> None:
        """Take no more work."""
        ...

    async def stop(self, drain_s: float) -> int:
        """Finish what runs within ``drain_s`` seconds, cancel the rest, and end.

        Returns how many were cancelled.
        """
        ...


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


def bind(settings: ServerSettings) -> socket.socket:
    """Bind the listening socket.

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
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        hint = (
            "choose another with --port"
            if error.errno == errno.EADDRINUSE
            else "check --host and --port"
        )
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror}; {hint}") from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL under which a bound socket is reached."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def ready_text(url: str, model: str) -> str:
    """Return the lines that say that the server is ready, and how to try it."""
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (
        f"headway: ready at {url} (model {model})\n"
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n"
    )


def _protocol() -> type[asyncio.Protocol] | Literal["h11"]:
    try:
        from headway.server.protocol import ResettableProtocol
    except ImportError:  # httptools does not exist for this platform
        return "h11"
    return ResettableProtocol


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for this platform
        return None
    return uvloop.new_event_loop


def make_server(
    app: ASGIApp, settings: ServerSettings, announce: Callable[[], None]
) -> uvicorn.Server:
    """Return the HTTP server, not yet running. Logging is whatever the process has set up."""
    config = uvicorn.Config(
        app,
        http=_protocol(),
        timeout_keep_alive=settings.keep_alive_timeout_s,
        timeout_graceful_shutdown=GOODBYE_S,
        access_log=settings.access_log,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
    )
    return _Server(config, announce)


class Supervisor:
    """Decides when the server ends; ``exit_code`` says how it ended."""

    def __init__(self, server: uvicorn.Server, engine: RunnableEngine, drain_s: float) -> None:
        self.exit_code = 0
        self._server = server
        self._engine = engine
        self._drain_s = drain_s
        self._stop = asyncio.Event()
        self._num_signals = 0

    def on_signal(self) -> None:
        """Drain; at the second call end at once."""
        self._num_signals += 1
        self._engine.begin_drain()
        self._stop.set()
        if self._num_signals > 1:
            self._server.force_exit = True
            self._server.should_exit = True

    async def watch(self) -> None:
        """Wait for a signal or for the engine's end, then end the server."""
        while not self._stop.is_set() and self._engine.status.state != "failed":
            try:
                async with asyncio.timeout(WATCH_INTERVAL_S):
                    await self._stop.wait()
            except TimeoutError:
                continue
        if self._engine.status.state == "failed":
            _log.error("the engine has failed: %s", self._engine.status.error)
            self.exit_code = 1
        else:
            await self._drain()
        self._server.should_exit = True

    async def _drain(self) -> None:
        draining = asyncio.create_task(self._engine.stop(self._drain_s))
        while not draining.done() and self._num_signals < 2:
            await asyncio.wait({draining}, timeout=0.05)
        if not draining.done():
            self.exit_code = 1
            draining.cancel()
        elif num_cut_off := draining.result():
            _log.warning("%d requests were cut off", num_cut_off)
            self.exit_code = 1


async def serve_async(
    app: ASGIApp,
    engine: RunnableEngine,
    settings: ServerSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> int:
    """Do what :func:`serve` does, on the running event loop of the main thread."""
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
    return supervisor.exit_code


def serve(
    app: ASGIApp,
    engine: RunnableEngine,
    settings: ServerSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> int:
    """Serve until a signal or the engine's end.

    Args:
        app: from :func:`headway.server.app.create_app`.
        engine: not yet started.
        settings: time-outs.
        listener: from :func:`bind`.
        announce: called with the URL once connections are accepted.

    Returns:
        the exit code: 0 after a full drain, 1 if work was cut off or the engine failed.
    """
    main = serve_async(app, engine, settings, listener, announce)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)
