"""How a machine slows down from time to time, as it was seen, and step costs that slow down so.

Neighbours, power limits and the system take time from an engine in stretches of a tenth of a second
or so, which queues feel as they feel no average. The stretches of a calibration are played again in
a simulation, from a place of their own for each engine.

What slows down computing need not slow down memory, for which steps of few rows wait: on two cores
of a virtual machine the time of prompts changed by 10 %, that of few decodes by 3 %, and seldom
together. So either kind of step has factors of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

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
_ENOUGH_S = 0.2
"""Of steps of one kind, by what is expected of them, tell how slow they are; where there are fewer
around a window, it is as slow as is usual for the kind, or for both where it is rare."""
_OUTLIER = 5.0
"""What a step took beyond this many times what is expected is a matter of its own window alone."""
_LEAST = 0.2
"""No machine is five times as fast as itself: less is an error of the fit."""


@dataclass(frozen=True, slots=True)
class Interference:
    """Factors on the time of steps, one for each window of busy time, in their order.

    Attributes:
        window_s: of each window.
        factors: of steps that have more than a few rows.
        few_rows: of those that do not; where it is empty, the factors hold for them as well.
    """

    window_s: float
    factors: Sequence[float]
    few_rows: Sequence[float] = ()

    def __post_init__(self) -> None:
        if not self.window_s > 0 or not self.factors:
            raise ProfileError("interference needs a window and factors")
        if min(*self.factors, *self.few_rows, 1.0) <= 0:
            raise ProfileError("factors of interference are above 0")
        if self.few_rows and len(self.few_rows) != len(self.factors):
            raise ProfileError("interference needs as many factors of either kind of step")


class TimedStep(NamedTuple):
    """What a step tells of the machine: its expected time, and what it took, in seconds."""

    has_few_rows: bool
    expected_s: float
    measured_s: float


def interference_of(steps: Iterable[TimedStep]) -> Interference | None:
    """Return what steps tell, in their order; None without a window.

    The factor of a window is the measured time of the steps around it over the expected one, for
    either kind of step: a fit errs by the kind, and a second has steps of all. Where a window
    stands out it is the window's own. Steps of which nothing is expected tell nothing.
    """
    windows = _windows(steps)[-_MOST_WINDOWS:]
    if not windows:
        return None
    many, few = (_around(windows, kind) for kind in (False, True))
    own = [_own(*each) for each in zip(windows, many, few, strict=True)]
    return Interference(_WINDOW_S, _factors(many, own), _factors(few, own))


def _own(window: _Window, many: float, few: float) -> float:
    """Return how much slower a window was than those around it; 1 if that isn't noticeable."""
    own = _WINDOW_S / (window.expected_s[False] * many + window.expected_s[True] * few)
    return own if abs(own - 1) > _NOTICEABLE else 1.0


def _factors(around: Sequence[float], own: Sequence[float]) -> list[float]:
    return [max(round(a * b, 3), _LEAST) for a, b in zip(around, own, strict=True)]


@dataclass(slots=True)
class _Window:
    """Seconds of the steps in one window: of those of more rows, and of those of few.

    Attributes:
        expected_s: of them.
        usual_s: that they took, without what stands out.
    """

    expected_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    usual_s: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, step: TimedStep, share: float) -> None:
        self.expected_s[step.has_few_rows] += share * step.expected_s
        usual_s = min(step.measured_s, _OUTLIER * step.expected_s)
        self.usual_s[step.has_few_rows] += share * usual_s


def _windows(steps: Iterable[TimedStep]) -> list[_Window]:
    """Return all windows that are full; a step lies in those that it spans."""
    found = [_Window()]
    room_s = _WINDOW_S
    for step in steps:
        left_s = step.measured_s if step.expected_s > 0 else 0.0
        while left_s >= room_s:
            found[-1].add(step, room_s / step.measured_s)
            found.append(_Window())
            left_s -= room_s
            room_s = _WINDOW_S
        if left_s > 0:
            found[-1].add(step, left_s / step.measured_s)
            room_s -= left_s
    return found[:-1]


def _around(windows: Sequence[_Window], kind: bool) -> list[float]:
    """Return how slow one kind of step was around each window."""
    expected = [0.0, *accumulate(each.expected_s[kind] for each in windows)]
    taken = [0.0, *accumulate(each.usual_s[kind] for each in windows)]
    last = len(windows)
    if expected[last] >= _ENOUGH_S:
        usual = taken[last] / expected[last]
    else:
        usual = sum(sum(w.usual_s) for w in windows) / sum(sum(w.expected_s) for w in windows)
    found = []
    for number in range(last):
        first, end = max(number - _AROUND, 0), min(number + 1 + _AROUND, last)
        expected_s = expected[end] - expected[first]
        enough = expected_s >= _ENOUGH_S
        found.append((taken[end] - taken[first]) / expected_s if enough else usual)
    return found


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
        self._few_rows = interference.few_rows or interference.factors
        self._num_windows = len(interference.factors)
        self._window = start % self._num_windows
        self._left_s = interference.window_s

    def seconds(self, shape: StepShape) -> float:
        """Return the time of the next step, and go on by it."""
        work_s, taken_s = self._inner.seconds(shape), 0.0
        factors = self._few_rows if shape.has_few_rows else self._factors
        while True:
            factor = factors[self._window]
            if work_s * factor < self._left_s:
                self._left_s -= work_s * factor
                return taken_s + work_s * factor
            taken_s += self._left_s
            work_s -= self._left_s / factor
            self._window = (self._window + 1) % self._num_windows
            self._left_s = self._window_s


def costs_of_engine(cost: StepCost, interference: Interference | None, number: int = 0) -> StepCost:
    """Return the costs of one engine, the ``number``-th on such machines, from its start on."""
    return cost if interference is None else Interfered(cost, interference, number * _APART)
