"""How fast requests leave, measured, so that a refused client is told when to come back."""

from __future__ import annotations

from collections import deque


class DrainRate:
    """Requests that ended per second, over the latest ``window`` endings."""

    MIN_RETRY_S = 1.0
    MAX_RETRY_S = 60.0

    def __init__(self, window: int = 64) -> None:
        self._ended_at: deque[float] = deque(maxlen=window)

    def record(self, now: float) -> None:
        """A request ended."""
        self._ended_at.append(now)

    def retry_after_s(self, num_ahead: int, now: float) -> float:
        """Return the expected time until ``num_ahead`` requests have left, between 1 and 60 s.

        Before anything was measured it is the minimum. The span reaches to ``now``, so a stalled
        server asks for more patience the longer it stalls.
        """
        if len(self._ended_at) < 2:
            return self.MIN_RETRY_S
        span = now - self._ended_at[0]
        expected = num_ahead * span / len(self._ended_at)
        return min(max(expected, self.MIN_RETRY_S), self.MAX_RETRY_S)
