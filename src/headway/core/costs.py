"""What a step costs in time: the model by which decisions are weighed, and how it is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headway.core.plan import StepPlan


class StepFeatures(NamedTuple):
    """What of a step costs time; a swapped block is one that moves out or in."""

    num_prefill_tokens: int
    num_decodes: int
    num_swapped_blocks: int = 0

    @classmethod
    def of_plan(cls, plan: StepPlan) -> StepFeatures:
        """Count what the plan computes, with its padding."""
        num_swapped = len(plan.swap_out) + len(plan.swap_in)
        if plan.padding is not None:
            num_sequences, num_rows, _ = plan.padding
            if num_rows > 1:
                return cls(num_sequences * num_rows, 0, num_swapped)
            return cls(0, num_sequences, num_swapped)
        num_tokens = num_decodes = 0
        for part in plan.slices:
            count = part.count
            if count == 1:
                num_decodes += 1
            else:
                num_tokens += count
        return cls(num_tokens, num_decodes, num_swapped)


class Countable(Protocol):
    """What the costs are taken of; the shapes of :mod:`headway.profiles` say more."""

    @property
    def num_prefill_tokens(self) -> int:
        """Positions of slices longer than one."""
        ...

    @property
    def num_decodes(self) -> int:
        """Slices of one position."""
        ...

    @property
    def num_swapped_blocks(self) -> int:
        """Blocks moved out or in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """A step's time is the sum of these, each times how often it occurs. All in seconds.

    Attributes:
        base_s: any step.
        prefill_token_s: each position of slices longer than one.
        decode_s: each slice of one position.
        swap_block_s: each block moved out or in.
    """

    base_s: float = 0.005
    prefill_token_s: float = 0.00005
    decode_s: float = 0.0001
    swap_block_s: float = 0.00002

    def seconds(self, step: Countable) -> float:
        """Return the expected time of a step."""
        return (
            self.base_s
            + self.prefill_token_s * step.num_prefill_tokens
            + self.decode_s * step.num_decodes
            + self.swap_block_s * step.num_swapped_blocks
        )

    def prefill_tokens_within(self, seconds: float, num_decodes: int) -> int:
        """Return how many positions can be prefilled beside ``num_decodes`` in that time."""
        left = seconds - self.base_s - self.decode_s * num_decodes
        if left <= 0:
            return 0
        if self.prefill_token_s * _UNBOUNDED <= left:
            return _UNBOUNDED
        return int(left / self.prefill_token_s)


#: more tokens than any step has: prefilling costs nothing
_UNBOUNDED = 1 << 40
#: steps after which an observation counts for a third of a new one
_WINDOW = 512
_KEEP = 1.0 - 1.0 / _WINDOW
#: ... but all observations of one kind of step count for that many, however old they are
_REMEMBERED = 4.0
#: the prior speaks as loudly as so many observations
_PRIOR_WEIGHT = 0.01
#: times beyond this multiple of what was expected count for less, in proportion
_OUTLIER = 2.0
#: the costs are solved for anew after so many observations, and sooner at first
_REFRESH = 16
_LEAST_S = 1e-6
#: no step takes so long: the clock was changed
_TOO_LONG_S = 1e6
_COUNT = 4
_SUMS = 14


class LearnedCosts:
    """Step costs fitted to measured times, beginning from a prior.

    Least squares with exponential forgetting, by the normal equations; a ridge pulls towards the
    prior what the steps say nothing of. A step weighs by the inverse square of the time that the
    prior expects, since errors grow with the time. Steps far slower than expected by now weigh
    less (Huber, 1964), so that a pause of the machine changes little, yet a lasting change is
    learned. Of each kind of step (with or without prefill, swap) something is remembered for ever:
    a thousand decode steps don't make the cost of prefilling unknown again.

    Observations lie aside until the costs are solved for anew, since nobody asks for them before.
    """

    __slots__ = ("_aside", "_costs", "_kinds", "_num_observed", "_prior", "_scales")

    def __init__(self, prior: StepCosts) -> None:
        self._prior = _values(prior)
        #: how large each cost may be by the prior; one that is 0 isn't known to be
        self._scales = [max(value, _LEAST_S) for value in self._prior]
        self._costs = prior
        self._kinds = [_Kind() for _ in range(4)]
        self._num_observed = 0  # and taken in
        self._aside: list[tuple[StepFeatures, float]] = []

    def observe(self, features: StepFeatures, elapsed_s: float) -> None:
        """Learn from a step that took ``elapsed_s``; 0 means that nobody measured it."""
        if not 0 < elapsed_s < _TOO_LONG_S:
            return
        self._aside.append((features, elapsed_s))
        num_new = len(self._aside)
        if num_new >= _REFRESH or num_new * 8 > self._num_observed + num_new:
            for each in self._aside:
                self._take_in(*each)
            self._aside.clear()
            self._refresh()

    def _take_in(self, features: StepFeatures, elapsed_s: float) -> None:
        x, y, z = features
        base, prefill, decode, swap = self._scales
        scale = base + prefill * x + decode * y + swap * z
        weight = 1.0 / (scale * scale)
        longest = _OUTLIER * self._costs.seconds(features) + _LEAST_S
        if elapsed_s > longest:
            weight *= longest / elapsed_s
        self._num_observed += 1
        kind = self._kinds[(x > 0) + 2 * (z > 0)]
        kind.add(features, elapsed_s, weight, self._num_observed)

    @property
    def costs(self) -> StepCosts:
        """The costs as of now (as of at most 15 steps ago)."""
        return self._costs

    def seconds(self, features: StepFeatures) -> float:
        """Return the expected time of a step."""
        return self._costs.seconds(features)

    def prefill_tokens_within(self, seconds: float, num_decodes: int) -> int:
        """Return how many positions can be prefilled beside ``num_decodes`` in that time."""
        return self._costs.prefill_tokens_within(seconds, num_decodes)

    def _refresh(self) -> None:
        matrix, right, highest = self._equations()
        base_s, prefill_token_s, decode_s, swap_block_s = _solve_within(matrix, right, highest)
        self._costs = StepCosts(
            base_s=base_s,
            prefill_token_s=prefill_token_s,
            decode_s=decode_s,
            swap_block_s=swap_block_s,
        )

    def _equations(self) -> tuple[list[list[float]], list[float], list[float]]:
        """Return the normal equations of all kinds of step with the ridge, and the highest costs.

        An error as large as the prior itself, in any cost, weighs like such a relative error in
        ``_PRIOR_WEIGHT`` observations; on a machine that is slower by a factor, an error larger by
        that factor does. The first steps that have a cost in them may double it each, or one pause
        in the first of them would make it look forbidding, and it would never be tried again.
        """
        s = [0.0] * _SUMS
        for kind in self._kinds:
            kept = kind.kept(self._num_observed)
            for each, value in enumerate(kind.sums):
                s[each] += kept * value
        matrix = [
            [s[0], s[1], s[2], s[3]],
            [s[1], s[4], s[5], s[6]],
            [s[2], s[5], s[7], s[8]],
            [s[3], s[6], s[8], s[9]],
        ]
        right = s[10:]
        slower = max(_factor(matrix, right, self._scales), 1.0)
        for each, value in enumerate(self._prior):
            ridge = _PRIOR_WEIGHT / (slower * self._scales[each]) ** 2
            matrix[each][each] += ridge
            right[each] += ridge * value
        seen = [self._num_observed, self._num_seen(1), self._num_observed, self._num_seen(2)]
        highest = [
            slower * scale * 2.0 ** min(count, 64)
            for scale, count in zip(self._scales, seen, strict=True)
        ]
        return matrix, right, highest

    def _num_seen(self, bit: int) -> int:
        return sum(kind.num_added for number, kind in enumerate(self._kinds) if number & bit)


class _Kind:
    """What was seen of one kind of step: the sums of its normal equations.

    With X the features (and a 1 for the step itself), W the weights and Y the times, ``sums`` is
    the upper triangle of XᵀWX row by row, then XᵀWY. ``count`` is the number of observations in
    them, the old ones discounted as in the sums, at step ``latest``.
    """

    __slots__ = ("count", "latest", "num_added", "sums")

    def __init__(self) -> None:
        self.sums: tuple[float, ...] = (0.0,) * _SUMS
        self.count = 0.0
        self.latest = 0
        self.num_added = 0

    def kept(self, step: int) -> float:
        """Return what part of the sums still counts at a later step."""
        kept = _KEEP ** (step - self.latest)
        if self.count * kept >= _REMEMBERED:
            return kept
        return min(_REMEMBERED / self.count, 1.0) if self.count else 1.0

    def add(self, features: StepFeatures, elapsed_s: float, weight: float, step: int) -> None:
        """Discount what was seen, and take in one more."""
        x, y, z = features
        k = self.kept(step)
        s11, s1x, s1y, s1z, sxx, sxy, sxz, syy, syz, szz, t1, tx, ty, tz = self.sums
        wx, wy, wz, wt = weight * x, weight * y, weight * z, weight * elapsed_s
        self.sums = (
            k * s11 + weight,
            k * s1x + wx,
            k * s1y + wy,
            k * s1z + wz,
            k * sxx + wx * x,
            k * sxy + wx * y,
            k * sxz + wx * z,
            k * syy + wy * y,
            k * syz + wy * z,
            k * szz + wz * z,
            k * t1 + wt,
            k * tx + wt * x,
            k * ty + wt * y,
            k * tz + wt * z,
        )
        self.count = k * self.count + 1.0
        self.latest = step
        self.num_added += 1


def _values(costs: StepCosts) -> list[float]:
    return [costs.base_s, costs.prefill_token_s, costs.decode_s, costs.swap_block_s]


def _factor(matrix: list[list[float]], right: list[float], scales: list[float]) -> float:
    """Return by what factor the steps were slower than the scales say, as best it fits."""
    expected = sum(
        matrix[i][j] * scales[i] * scales[j] for i in range(_COUNT) for j in range(_COUNT)
    )
    measured = sum(value * each for value, each in zip(right, scales, strict=True))
    return measured / expected if expected > 0 else 1.0


def _solve_within(
    matrix: list[list[float]], right: list[float], highest: list[float]
) -> list[float]:
    """Solve the symmetric positive definite equations; what leaves [0, highest] is held there."""
    free = list(range(_COUNT))
    solution = [0.0] * _COUNT
    while free:
        held = [each for each in range(_COUNT) if each not in free]
        rest = [right[i] - sum(matrix[i][j] * solution[j] for j in held) for i in free]
        found = _solve([[matrix[i][j] for j in free] for i in free], rest)
        outside = False
        for each, value in zip(tuple(free), found, strict=True):
            solution[each] = min(max(value, 0.0), highest[each])
            if solution[each] != value:
                free.remove(each)
                outside = True
        if not outside:
            break
    return solution


def _solve(rows: list[list[float]], right: list[float]) -> list[float]:
    """Solve by elimination. Positive definite: pivots need no search."""
    size = len(right)
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            for k in range(i, size):
                rows[j][k] -= factor * rows[i][k]
            right[j] -= factor * right[i]
    for i in reversed(range(size)):
        known = sum(rows[i][k] * right[k] for k in range(i + 1, size))
        right[i] = (right[i] - known) / rows[i][i]
    return right
