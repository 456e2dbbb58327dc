"""Decides when the server ends, and sees to it that it does."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from headway.server.front import EngineView

_log = logging.getLogger(__name__)

#: How often the engine's state is looked at.
WATCH_INTERVAL_S = 0.5

#: Time that a step has to end when everything in it was cancelled.
LAST_STEP_S = 5


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


class EndableServer(Protocol):
    """An HTTP server that can be told to end."""

    def end(self, *, at_once: bool = False) -> None:
        """End when clients have read their last bytes, or drop all connections now."""
        ...


class Supervisor:
    """Ends the server after a signal, or when the engine has failed.

    Attributes:
        exit_code: 0 if all work was done, else 1.
        is_clean: whether nothing was left behind that could keep the process from ending.
    """

    def __init__(self, server: EndableServer, engine: RunnableEngine, drain_s: float) -> None:
        self.exit_code = 0
        self.is_clean = True
        self._server = server
        self._engine = engine
        self._drain_s = drain_s
        self._asked = asyncio.Event()
        self._at_once = asyncio.Event()

    def on_signal(self) -> None:
        """Drain; at the second call end at once."""
        if not self._asked.is_set():
            _log.info("stopping: what runs has %g s to finish", self._drain_s)
            self._asked.set()
            self._engine.begin_drain()
        elif not self._at_once.is_set():
            self._give_up("a second signal: ending at once")
            self._at_once.set()
            self._server.end(at_once=True)

    async def watch(self) -> None:
        """Wait for a signal or for the engine's end, then end engine and server."""
        try:
            await self._until_asked_or_failed()
            await self._stop_engine()
        except Exception:  # noqa: BLE001 - whatever breaks at the end, the process must not hang
            _log.exception("the engine did not stop well")
            self.exit_code = 1
        finally:
            self._server.end()

    async def _until_asked_or_failed(self) -> None:
        while not self._asked.is_set() and self._engine.status.state != "failed":
            try:
                async with asyncio.timeout(WATCH_INTERVAL_S):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def _stop_engine(self) -> None:
        stopping = asyncio.create_task(self._engine.stop(self._drain_s))
        at_once = asyncio.create_task(self._at_once.wait())
        await asyncio.wait(
            {stopping, at_once},
            timeout=self._drain_s + LAST_STEP_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        at_once.cancel()
        if stopping.done():
            self._judge(stopping.result())
            return
        stopping.cancel()
        if not self._at_once.is_set():
            self._give_up("the engine's step does not end: ending without it")

    def _judge(self, num_cut_off: int) -> None:
        status = self._engine.status
        if status.state == "failed":
            _log.error("the engine has failed: %s", status.error)
            self.exit_code = 1
        elif num_cut_off:
            _log.warning("requests that were cut off: %d", num_cut_off)
            self.exit_code = 1

    def _give_up(self, message: str) -> None:
        _log.warning(message)
        self.exit_code = 1
        self.is_clean = False
