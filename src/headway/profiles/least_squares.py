"""Least squares with coefficients that are not negative, for a handful of features."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

_RIDGE = 1e-9
"""Relative to a column's own size: enough that columns that say the same can be solved for."""


class NormalEquations:
    """Sums of weighted observations, XᵀWX and XᵀWy, to which more can be added at any time."""

    def __init__(self, num_features: int) -> None:
        self._size = num_features
        self._matrix = [[0.0] * num_features for _ in range(num_features)]
        self._right = [0.0] * num_features

    def add(self, features: Sequence[float], value: float, weight: float) -> None:
        """Take an observation in."""
        for i, x in enumerate(features):
            if x:
                self._right[i] += weight * x * value
                row = self._matrix[i]
                for j, z in enumerate(features):
                    row[j] += weight * x * z

    def add_all(self, other: NormalEquations, share: float) -> None:
        """Take in all observations of another one, each for a share of what it counts there."""
        for i, row in enumerate(other._matrix):
            self._right[i] += share * other._right[i]
            self._matrix[i] = [
                mine + share * its for mine, its in zip(self._matrix[i], row, strict=True)
            ]

    def forget(self, kept: float) -> None:
        """Let everything so far count for this share of what it did."""
        self._matrix = [[kept * each for each in row] for row in self._matrix]
        self._right = [kept * each for each in self._right]

    def solve(self) -> list[float]:
        """Return the coefficients (Lawson and Hanson, 1974, on the normal equations).

        A feature that never occurred gets 0. Columns are scaled first: they differ by many orders.
        """
        scales = [sqrt(self._matrix[i][i]) or 1.0 for i in range(self._size)]
        matrix = [
            [self._matrix[i][j] / (scales[i] * scales[j]) for j in range(self._size)]
            for i in range(self._size)
        ]
        right = [each / scale for each, scale in zip(self._right, scales, strict=True)]
        found = _nonnegative(matrix, right)
        return [each / scale for each, scale in zip(found, scales, strict=True)]


def _nonnegative(matrix: list[list[float]], right: list[float]) -> list[float]:
    size = len(right)
    solution = [0.0] * size
    active: list[int] = []
    for _ in range(3 * size):
        gradient = [
            right[i] - sum(matrix[i][j] * solution[j] for j in range(size)) for i in range(size)
        ]
        others = [i for i in range(size) if i not in active and matrix[i][i] > 0]
        entering = max(others, key=lambda i: gradient[i], default=None)
        if entering is None or gradient[entering] <= 1e-12:
            break
        active.append(entering)
        solution, active = _settle(matrix, right, solution, active)
    return solution


def _settle(
    matrix: list[list[float]], right: list[float], solution: list[float], active: list[int]
) -> tuple[list[float], list[int]]:
    """Solve for the active ones; go only so far that none is negative, and drop who is at 0."""
    while True:
        wanted = _solve(matrix, right, active)
        if all(value > 0 for value in wanted.values()):
            return [wanted.get(i, 0.0) for i in range(len(right))], active
        step = min(
            solution[i] / (solution[i] - value) if solution[i] > value else 0.0
            for i, value in wanted.items()
            if value <= 0
        )
        solution = [
            each + step * (wanted[i] - each) if i in wanted else 0.0
            for i, each in enumerate(solution)
        ]
        active = [i for i in active if solution[i] > 1e-15 and (wanted[i] > 0 or step < 1)]
        solution = [each if i in active else 0.0 for i, each in enumerate(solution)]
        if not active:
            return solution, active


def _solve(matrix: list[list[float]], right: list[float], active: list[int]) -> dict[int, float]:
    """Solve the equations of the active ones by elimination; positive definite by the ridge."""
    rows = [[matrix[i][j] + (_RIDGE if i == j else 0.0) for j in active] for i in active]
    values = [right[i] for i in active]
    size = len(active)
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            for k in range(i, size):
                rows[j][k] -= factor * rows[i][k]
            values[j] -= factor * values[i]
    for i in reversed(range(size)):
        known = sum(rows[i][k] * values[k] for k in range(i + 1, size))
        values[i] = (values[i] - known) / rows[i][i]
    return dict(zip(active, values, strict=True))
