"""Scales of charts: from a value to a place between 0 and 1, and the ticks worth a label."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Protocol


class Scale(Protocol):
    """Places values."""

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1; what is beyond an end lies at the end."""
        ...

    def ticks(self) -> list[tuple[float, str]]:
        """Return (place, label) of each tick."""
        ...


@dataclass(frozen=True, slots=True)
class Linear:
    """Even, from 0 or another low end to a high one; ``unit`` stands behind the last label."""

    low: float
    high: float
    unit: str = ""

    def place(self, value: float) -> float:
        """Return where a value lies."""
        return _within((value - self.low) / (self.high - self.low or 1.0))

    def ticks(self) -> list[tuple[float, str]]:
        """Return three to six round numbers."""
        step = _round_step((self.high - self.low) / 5)
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
        labels = [f"{value:,.10g}" for value in values]
        if labels and self.unit:
            labels[-1] += f" {self.unit}"
        return [(self.place(value), label) for value, label in zip(values, labels, strict=True)]


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Times in seconds, from a low to a high end above 0, each tenfold as long."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value lies."""
        span = log10(self.high / self.low)
        return _within(log10(max(value, self.low) / self.low) / (span or 1.0))

    def ticks(self) -> list[tuple[float, str]]:
        """Return decades, with more between them the fewer there are."""
        span = log10(self.high / self.low)
        steps: tuple[float, ...] = (1,)
        if span <= 3:
            steps = (1, 2, 5)
        if span <= 0.8:
            steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        values = [step * 10.0**decade for decade in decades for step in steps]
        inside = [v for v in values if self.low * 0.999 <= v <= self.high * 1.001]
        return [(self.place(value), time_label(value)) for value in inside]


@dataclass(frozen=True, slots=True)
class Tail:
    """Shares from 0 up to ``1 - 10**-nines``: each further nine is as far as the one before."""

    nines: float

    def place(self, value: float) -> float:
        """Return where a share lies."""
        return _within(-log10(max(1 - value, 1e-12)) / self.nines)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the usual shares."""
        usual = (("0", 0.0), ("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999))
        return [(self.place(s), label) for label, s in usual if -log10(1 - s) <= self.nines + 1e-9]


def time_label(seconds: float) -> str:
    """Return a round time for an axis."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.999:
            return f"{seconds * factor:,.6g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def around(low: float, high: float, least: float = 1e-5) -> Logarithmic:
    """Return a scale with some room around values; what is below ``least`` lies at its end."""
    low, high = max(low, least), max(high, least)
    if high < low * 1.5:
        low, high = low / 1.5, high * 1.5
    return Logarithmic(low / 1.1, high * 1.1)


def _round_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    magnitude = 10.0 ** floor(log10(rough))
    return next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough * 0.999)


def _within(place: float) -> float:
    return min(max(place, 0.0), 1.0)
