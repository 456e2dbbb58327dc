"""Counts the steps that a cost model was not made for: extrapolation is said, never silent."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from headway.profiles.shape import StepCost, StepShape


@runtime_checkable
class Bounded(StepCost, Protocol):
    """A cost model that knows its range."""

    def covers(self, shape: StepShape) -> bool:
        """Whether the step lies within what was measured."""
        ...


def watched(cost: StepCost) -> tuple[StepCost, Watched | None]:
    """Return the model with an eye on its range, if it has one, and that eye."""
    if not isinstance(cost, Bounded):
        return cost, None
    watching = Watched(cost)
    return watching, watching


class Watched:
    """Implements :class:`StepCost` by another one, and looks at what it is asked.

    Attributes:
        num_steps: that were asked for.
        num_beyond: those beyond the range of the model.
        seconds_beyond: the time of these.
    """

    def __init__(self, inner: Bounded) -> None:
        self._inner = inner
        self.num_steps = 0
        self.num_beyond = 0
        self.seconds_beyond = 0.0

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step."""
        seconds = self._inner.seconds(shape)
        self.num_steps += 1
        if not self._inner.covers(shape):
            self.num_beyond += 1
            self.seconds_beyond += seconds
        return seconds

    @property
    def warning(self) -> str | None:
        """What is to be said of it; None if it stayed within its range."""
        return f"{self}: these are extrapolated" if self.num_beyond else None

    def __str__(self) -> str:
        return f"{self.num_beyond} of {self.num_steps} steps lie beyond what was measured"
