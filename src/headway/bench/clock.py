"""The time of a load test, counted from when it begins."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> float:
        """Return seconds since the beginning."""
        ...

    async def sleep_until(self, moment_s: float) -> None:
        """Wait; others run meanwhile."""
        ...


class RealClock:
    """The machine's monotonic clock; it begins when it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def now(self) -> float:
        """Return seconds since the clock was made."""
        return time.monotonic() - self._began

    async def sleep_until(self, moment_s: float) -> None:
        """Wait; others get a turn even if the moment has passed. Never returns too early.

        Timers of event loops are rounded to milliseconds, uvloop's downwards too.
        """
        await asyncio.sleep(max(moment_s - self.now(), 0.0))
        while (left_s := moment_s - self.now()) > 0:
            await asyncio.sleep(left_s)
