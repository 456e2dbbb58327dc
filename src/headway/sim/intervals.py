"""How sure a figure is that several seeds gave: the mean, and where it lies 95 times in 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

_T975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t at 97.5 % by degrees of freedom, from 1 on."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence interval (Student's t over the seeds)."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of a mean; of a single value it is that value."""
    count = len(values)
    mean = fsum(values) / count
    if count == 1:
        return Interval(mean, mean, mean)
    deviation = sqrt(fsum((each - mean) ** 2 for each in values) / (count - 1))
    half = student_t(count - 1) * deviation / sqrt(count)
    return Interval(mean, mean - half, mean + half)


def student_t(degrees: int) -> float:
    """Return Student's t at 97.5 %; beyond the table by the first terms of its expansion."""
    if degrees <= len(_T975):
        return _T975[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees)  # Abramowitz and Stegun, 26.7.5


def intervals(reports: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, Interval]:
    """Return the interval of each of the figures that every one of the reports has."""
    found: dict[str, Interval] = {}
    for key in keys:
        values = [report.get(key) for report in reports]
        numbers = [float(each) for each in values if isinstance(each, int | float)]
        if len(numbers) == len(reports):
            found[key] = interval(numbers)
    return found
