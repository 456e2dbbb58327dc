"""Two clocks for one loop: real time for serving, virtual time for simulation and tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where ``now`` comes from, and how an executor that only pretends spends its time."""

    def now(self) -> float:
        """Return the present in seconds, from an arbitrary origin; never runs backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)


class VirtualClock:
    """Time that passes only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return virtual seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move on at once.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        self._now += seconds

    def sleep_until(self, moment: float) -> None:
        """Move on to ``moment``, if it lies ahead."""
        self._now = max(self._now, moment)
