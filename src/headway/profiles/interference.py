"""How a machine slows down from time to time, as it was seen, and step costs that slow down so.

Neighbours, power limits and the system take time from an engine in stretches of a tenth of a second
or so, which queues feel as they feel no average. The stretches of a calibration are played again in
a simulation, from a place of their own for each engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.profiles.errors import ProfileError
from headway.profiles.shape import StepCost, StepShape

_WINDOW_S = 0.05
_APART = 997
"""Windows between the starts of two engines: a prime, so that few begin alike."""
_MOST_WINDOWS = 12_000
"""Ten minutes: the last of a longer log."""
_NOTICEABLE = 0.25
_AROUND = 10
"""Windows before one and after it: half a second each."""
_LEAST = 0.2
"""No machine is five times as fast as itself: less is an error of the fit."""


@dataclass(frozen=True, slots=True)
class Interference:
    """Factors on the time of steps, one for each window of busy time, in their order."""

    window_s: float
    factors: Sequence[float]

    def __post_init__(self) -> None:
        if not self.window_s > 0 or not self.factors or min(self.factors) <= 0:
            raise ProfileError("interference needs a window, and factors above 0")


def interference_of(seconds: Iterable[tuple[float, float]]) -> Interference | None:
    """Return what steps tell by their expected and measured times, in order; None without a window.

    The factor of a window is the measured time of the steps in it over the expected one. Only where
    that stands out is it the window's own: else it is that of the seconds around it, since a fit
    errs by the kind of step, and these have steps of all kinds.
    """
    expected = [0.0]  # of all windows so far
    expected_s = measured_s = 0.0
    for expected_step_s, measured_step_s in seconds:
        expected_s += expected_step_s
        measured_s += measured_step_s
        num_windows = int(measured_s / _WINDOW_S)
        if num_windows:
            per_window_s = _WINDOW_S * expected_s / measured_s
            expected += [expected[-1] + n * per_window_s for n in range(1, num_windows + 1)]
            measured_s -= num_windows * _WINDOW_S  # what is left begins the next window
            expected_s -= num_windows * per_window_s
    factors = _factors(expected[-_MOST_WINDOWS - 1 :])
    return Interference(_WINDOW_S, factors) if factors else None


def _factors(expected: Sequence[float]) -> list[float]:
    """Return the factor of each window, from what was expected until the end of each."""
    last = len(expected) - 1
    found = []
    for number in range(last):
        first, end = max(number - _AROUND, 0), min(number + 1 + _AROUND, last)
        around = _factor(end - first, expected[end] - expected[first])
        own = _factor(1, expected[number + 1] - expected[number])
        found.append(own if abs(own / around - 1) > _NOTICEABLE else around)
    return found


def _factor(num_windows: int, expected_s: float) -> float:
    return max(round(num_windows * _WINDOW_S / expected_s, 3), _LEAST)


class Interfered:
    """Implements :class:`StepCost` by another one on a machine that slows down; for one engine.

    Args:
        inner: costs without interference.
        interference: is played in a circle.
        start: the window to begin with.
    """

    def __init__(self, inner: StepCost, interference: Interference, start: int = 0) -> None:
        self._inner = inner
        self._window_s = interference.window_s
        self._factors = interference.factors
        self._window = start % len(interference.factors)
        self._left_s = interference.window_s

    def seconds(self, shape: StepShape) -> float:
        """Return the time of the next step, and go on by it."""
        work_s, taken_s = self._inner.seconds(shape), 0.0
        while True:
            factor = self._factors[self._window]
            if work_s * factor < self._left_s:
                self._left_s -= work_s * factor
                return taken_s + work_s * factor
            taken_s += self._left_s
            work_s -= self._left_s / factor
            self._window = (self._window + 1) % len(self._factors)
            self._left_s = self._window_s


def costs_of_engine(cost: StepCost, interference: Interference | None, number: int = 0) -> StepCost:
    """Return the costs of one engine, the ``number``-th on such machines, from its start on."""
    return cost if interference is None else Interfered(cost, interference, number * _APART)
