"""Step costs that follow a machine: the sums of a fit, to which each step is added as it is run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headway.profiles.errors import ProfileError
from headway.profiles.fitted import (
    FEATURES_OF,
    FEWEST,
    FitError,
    FittedCosts,
    Side,
    expected_of,
    weight_of,
)
from headway.profiles.least_squares import NormalEquations
from headway.profiles.shape import StepShape

_WINDOW = 4096
"""Steps of a kind after which one counts for a third of a new one."""
_GROWTH = 1.0 + 1.0 / _WINDOW
_TOO_LOUD = 1e9
"""From this weight of a new step on, all sums are made smaller: they would grow without end."""
_REFRESH = 64
"""The costs are solved for anew after so many steps, and sooner at first."""
_PRIOR_WEIGHT = 4.0
"""What was known before speaks like so many steps, of each feature."""
_ERRORS_KEPT = 1024


class RunningFit:
    """A fit of one side's time that is never done, and forgets.

    Steps with and without chunks are forgotten apart: a night of decodes does not make the cost of
    prompts unknown. A step is predicted before it is taken in, so the error is of steps that the
    fit had not seen.

    Args:
        side: whose time it is.
        prior: what is known before; its ranges hold on.
    """

    def __init__(self, side: Side, prior: FittedCosts | None = None) -> None:
        self._side: Side = side
        self._features = FEATURES_OF[side]
        self._kinds = (_Kind(len(self._features)), _Kind(len(self._features)))
        self._prior = prior
        self._costs = [] if prior is None else [prior.costs_s.get(n, 0.0) for n in self._features]
        self._ranges = {} if prior is None else dict(prior.ranges)
        self._errors: deque[float] = deque(maxlen=_ERRORS_KEPT)
        self._refresh_at = 1
        self.num_steps = 0

    def add(self, shape: StepShape, seconds: float) -> None:
        """Take in a step and the time that it took, above 0."""
        row = [feature(shape) for feature in self._features.values()]
        expected = expected_of(row, self._costs)
        if expected > 0 and self.num_steps >= FEWEST:
            self._errors.append(abs(expected / seconds - 1))
        weight = weight_of(expected or seconds, seconds)
        self._kinds[bool(shape.chunks)].add(row, seconds, weight)
        self._widen(row)
        self.num_steps += 1
        if self.num_steps >= self._refresh_at:
            self._costs = self._solved()
            self._refresh_at = self.num_steps + min(max(self.num_steps // 8, 1), _REFRESH)

    def costs(self) -> FittedCosts:
        """Return the costs as of now.

        Raises:
            ProfileError: there were too few steps, and nothing was known before.
        """
        if len(self._errors) < FEWEST:  # as many again as the fit took
            if self._prior is None:
                raise ProfileError(
                    f"{self.num_steps} steps are too few for a fit: {2 * FEWEST} are needed"
                )
            return self._prior
        costs = zip(self._features, self._solved(), strict=True)
        return FittedCosts(
            side=self._side,
            costs_s={name: cost for name, cost in costs if cost > 0},
            ranges=dict(self._ranges),
            error=FitError.of(self._errors),
        )

    def _widen(self, row: Sequence[float]) -> None:
        for name, value in zip(self._features, row, strict=True):
            if self._prior is not None and name not in self._prior.ranges:
                continue  # an older profile doesn't know it, and the rows seen since are few
            least, most = self._ranges.get(name, (value, value))
            if not least <= value <= most or name not in self._ranges:
                self._ranges[name] = (min(least, value), max(most, value))

    def _solved(self) -> list[float]:
        equations = NormalEquations(len(self._features))
        for kind in self._kinds:
            equations.add_all(kind.equations, 1 / kind.loudness)
        if self._prior is not None:
            for number, name in enumerate(self._features):
                self._remember(equations, number, self._prior.costs_s.get(name, 0.0))
        return equations.solve()

    def _remember(self, equations: NormalEquations, number: int, cost: float) -> None:
        """Add what was known of a cost: an error as large as itself counts as one of a step's."""
        if cost > 0:
            row = [0.0] * len(self._features)
            row[number] = 1.0
            equations.add(row, cost, _PRIOR_WEIGHT / cost**2)


class _Kind:
    """The sums of one kind of step. Old steps are not made quieter, but new ones louder."""

    def __init__(self, num_features: int) -> None:
        self.equations = NormalEquations(num_features)
        self.loudness = 1.0

    def add(self, row: Sequence[float], seconds: float, weight: float) -> None:
        self.loudness *= _GROWTH
        self.equations.add(row, seconds, weight * self.loudness)
        if self.loudness > _TOO_LOUD:
            self.equations.forget(1 / self.loudness)
            self.loudness = 1.0
