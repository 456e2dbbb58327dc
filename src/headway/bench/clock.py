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
        """Wait; returns at once if the moment has passed."""
        await asyncio.sleep(max(moment_s - self.now(), 0.0))
