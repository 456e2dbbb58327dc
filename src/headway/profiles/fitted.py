"""Step costs fitted to a step log: linear in features, none negative, with range and error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Literal

from headway.profiles.errors import ProfileError
from headway.profiles.features import FEATURES, HOST_FEATURES, ObservedStep
from headway.profiles.least_squares import NormalEquations
from headway.profiles.shape import StepShape

Side = Literal["device", "host"]

FEATURES_OF: Mapping[Side, Mapping[str, Callable[[StepShape], float]]] = {
    "device": FEATURES,
    "host": HOST_FEATURES,
}
_HELD_OUT_EVERY = 5
_PASSES = 8
_OUTLIER = 2.0
"""Steps that took this many times what is expected count for less, in proportion (Huber, 1964)."""
_AROUND = 25
"""Steps before one and after it that tell the speed of the machine just then."""
FEWEST = 20
"""Steps that a fit needs."""
_Observation = tuple[StepShape, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """Relative errors of steps that were held out of the fit: half, and nine in ten, are below."""

    median: float
    p90: float
    num_steps: int

    @classmethod
    def of(cls, errors: Iterable[float]) -> FitError:
        """Return it for the errors of steps, at least one."""
        off = sorted(errors)
        return cls(median=off[len(off) // 2], p90=off[9 * len(off) // 10], num_steps=len(off))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCosts:
    """Implements :class:`headway.profiles.shape.StepCost`: a sum of features times their costs.

    Attributes:
        side: whose time it is, which decides the features.
        costs_s: seconds of one of each feature, by name; those not named cost nothing.
        ranges: the least and the most of each feature in the log; of a feature that isn't there
            (an older profile knows fewer) nothing is said.
        error: of steps that were held out.
    """

    side: Side = "device"
    costs_s: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    error: FitError

    def __post_init__(self) -> None:
        known = FEATURES_OF[self.side]
        for name in (*self.costs_s, *self.ranges):
            if name not in known:
                raise ProfileError(f"{name} is no feature: there are {', '.join(known)}")

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step."""
        known = FEATURES_OF[self.side]
        return sum(cost * known[name](shape) for name, cost in self.costs_s.items() if cost)

    def beyond(self, shape: StepShape) -> list[str]:
        """Return the features of which the log had none like it; empty within its range."""
        known = FEATURES_OF[self.side]
        return [
            name
            for name, (least, most) in self.ranges.items()
            if not least <= known[name](shape) <= most
        ]

    def covers(self, shape: StepShape) -> bool:
        """Whether the step lies within the log's range, feature by feature."""
        return not self.beyond(shape)


def expected_of(row: Sequence[float], costs: Sequence[float]) -> float:
    """Return the seconds of a step with these values of the features; 0 while no cost is known."""
    return sum(x * cost for x, cost in zip(row, costs, strict=False))


def weight_of(expected: float, seconds: float) -> float:
    """Return how much a step counts: by the inverse square of the expected time, as errors grow.

    An outlier counts for less. (With the time that was measured as the weight, steps that were
    quick by chance would count for more.)
    """
    return min(_OUTLIER * expected / seconds, 1.0) / expected**2


def fit_device(steps: Iterable[ObservedStep], *, shapes_mix: bool = False) -> FittedCosts:
    """Fit the device's time of each step.

    Args:
        steps: in their order.
        shapes_mix: whether steps of all shapes come in any second, as they do while an engine
            serves, so that those around a step tell the speed of the machine just then.

    Raises:
        ProfileError: there are too few steps.
    """
    return _fit("device", [(step.shape, step.seconds) for step in steps], shapes_mix)


def fit_host(steps: Iterable[ObservedStep]) -> FittedCosts:
    """Fit the host's time of each step.

    Raises:
        ProfileError: there are too few steps, or none has a host time.
    """
    return _fit("host", [(step.shape, step.host_s) for step in steps], shapes_mix=False)


def _fit(side: Side, steps: Sequence[_Observation], shapes_mix: bool) -> FittedCosts:
    """Fit to all steps; the error is of a fit without every fifth of them, on these."""
    steps = [(shape, seconds) for shape, seconds in steps if seconds > 0]
    if len(steps) < FEWEST:
        raise ProfileError(f"{len(steps)} steps are too few for a fit: {FEWEST} are needed")
    held_out = steps[::_HELD_OUT_EVERY]
    rest = [step for number, step in enumerate(steps) if number % _HELD_OUT_EVERY]
    without = _costs(side, rest, shapes_mix)
    error = FitError.of(abs(_predict(side, without, s) / seconds - 1) for s, seconds in held_out)
    ranges = {}
    for name, feature in FEATURES_OF[side].items():
        seen = [feature(shape) for shape, _ in steps]
        ranges[name] = (min(seen), max(seen))
    return FittedCosts(
        side=side, costs_s=_costs(side, steps, shapes_mix), ranges=ranges, error=error
    )


def _costs(side: Side, steps: Sequence[_Observation], shapes_mix: bool) -> dict[str, float]:
    """Fit again and again, since only a fit tells what is expected, who are outliers, and when.

    Where shapes mix, each step counts with the time that it would have taken at the usual speed. A
    slow machine makes batches grow, so without this its slowness would look like a cost of large
    batches.
    """
    features = FEATURES_OF[side]
    rows = [([feature(shape) for feature in features.values()], s) for shape, s in steps]
    kinds = _kinds(steps) if shapes_mix else []
    costs: list[float] = []
    slowness = [1.0] * len(rows)
    for _ in range(_PASSES):
        equations = NormalEquations(len(features))
        for (row, measured), slower in zip(rows, slowness, strict=True):
            seconds = measured / slower
            expected = expected_of(row, costs) or seconds
            equations.add(row, seconds, weight_of(expected, seconds))
        costs = equations.solve()
        timed = [(expected_of(row, costs), seconds) for row, seconds in rows]
        for kind in kinds:
            for number, slower in zip(kind, _slowness([timed[n] for n in kind]), strict=True):
                slowness[number] = slower
    return {name: cost for name, cost in zip(features, costs, strict=True) if cost > 0}


def _kinds(steps: Sequence[_Observation]) -> list[list[int]]:
    """Return which steps have few rows, and which do not: a machine slows them down apart."""
    kinds: tuple[list[int], list[int]] = ([], [])
    for number, (shape, _) in enumerate(steps):
        kinds[shape.has_few_rows].append(number)
    return [kind for kind in kinds if kind]


def _slowness(steps: Sequence[tuple[float, float]]) -> list[float]:
    """Return by how much the steps around each took longer than expected, over what is usual.

    Args:
        steps: the expected and the measured seconds of each, in their order; at least one.
    """
    expected = [0.0, *accumulate(each for each, _ in steps)]
    measured = [0.0, *accumulate(min(seconds, _OUTLIER * each) for each, seconds in steps)]
    found = []
    for number in range(len(steps)):
        first, end = max(number - _AROUND, 0), min(number + 1 + _AROUND, len(steps))
        expected_s = expected[end] - expected[first]
        found.append((measured[end] - measured[first]) / expected_s if expected_s > 0 else 1.0)
    usual = median(found) or 1.0
    return [each / usual or 1.0 for each in found]


def _predict(side: Side, costs_s: Mapping[str, float], shape: StepShape) -> float:
    return sum(cost * FEATURES_OF[side][name](shape) for name, cost in costs_s.items())
