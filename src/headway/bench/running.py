"""Runs a load test in an event loop of its own, and ends it well when it is interrupted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headway.bench.session import Session
from headway.report import Report

Work = Callable[[Callable[[Session], None]], Awaitable[Report]]
"""Runs a load test; tells the session before it begins."""


def run_until_stopped(work: Work) -> tuple[Report, bool]:
    """Run a load test; return its report, and whether it was interrupted.

    The first SIGINT ends the run, whose report has what there is; a second one ends everything.

    Raises:
        KeyboardInterrupt: it was interrupted before anything was sent, or twice.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_watched(work))


async def _watched(work: Work) -> tuple[Report, bool]:
    loop = asyncio.get_running_loop()
    sessions: list[Session] = []

    def on_session(session: Session) -> None:
        sessions.append(session)
        with suppress(NotImplementedError):  # Windows has no such handlers
            loop.add_signal_handler(signal.SIGINT, interrupt)

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # the next one is Python's own
        sessions[0].stop()

    report = await work(on_session)
    return report, sessions[0].was_stopped


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, where there is one: a client should take little time for itself."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
