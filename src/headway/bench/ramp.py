"""A ramp to saturation: the rate goes up until nothing more comes out, and the knee is found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from headway.bench.errors import TargetError
from headway.report import RampStep

#: a step has brought more if it brought so much more than the best before
_GROWTH = 1.05
#: steps in a row that brought nothing, after which it is over
_PATIENCE = 2
#: more steps are a mistake in the first rate
_MOST_STEPS = 40

Measure = Callable[[float], Awaitable[RampStep | None]]
"""Measures at a rate; None if somebody stopped it."""


@dataclass(frozen=True, slots=True)
class Climb:
    """What a ramp brought.

    Attributes:
        steps: all that were measured.
        knee: the rate of the best step, if those beyond it brought nothing more.
    """

    steps: Sequence[RampStep]
    knee: float | None


async def climb(measure: Measure, first_rate: float, factor: float, *, by_goodput: bool) -> Climb:
    """Raise the rate until goodput, or else the requests completed a second, no longer grow.

    Args:
        measure: measures at a rate.
        first_rate: requests a second; low enough to be served with ease.
        factor: of each rate over the one before.
        by_goodput: whether targets were promised, so that goodput counts.

    Raises:
        TargetError: the numbers make no ramp.
    """
    if not first_rate > 0 or not factor > 1:
        raise TargetError(
            f"a ramp begins above 0 and grows by a factor above 1, not {first_rate:g}, {factor:g}"
        )
    steps: list[RampStep] = []
    best, knee, num_idle = 0.0, first_rate, 0
    rate = first_rate
    while num_idle < _PATIENCE and len(steps) < _MOST_STEPS:
        step = await measure(rate)
        if step is None:
            return Climb(steps, None)
        steps.append(step)
        brought = step.goodput if by_goodput else step.request_throughput
        if brought > best * _GROWTH:
            best, knee, num_idle = brought, rate, 0
        else:
            num_idle += 1
        rate *= factor
    return Climb(steps, knee if num_idle >= _PATIENCE else None)
