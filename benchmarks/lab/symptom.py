"""What a symptom is: a cause, off and on, and the figures that it moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A number without the cause and with it, and whether the cause should raise it."""

    name: str
    off: float
    on: float
    shown: Callable[[float], str]
    rises: bool = True

    @property
    def is_seen(self) -> bool:
        """Whether it moves as it should, by 2 % at least."""
        low, high = (self.off, self.on) if self.rises else (self.on, self.off)
        return high > 1.02 * low


@dataclass(frozen=True, slots=True)
class Symptom:
    """What is seen, why, what helps, how it is shown, and the figures."""

    name: str
    cause: str
    cure: str
    setup: str
    figures: tuple[Figure, ...]
