"""Label values from outside, kept to a bounded number: each one costs a time series for ever."""

from __future__ import annotations

OTHER = "other"


class BoundedLabel:
    """Passes the first ``limit`` distinct values and turns later ones into ``other``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value to use as the label."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value
