"""Quantiles of measured values."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of the values lie.

    Between two neighbours it goes in a straight line (method 7 of Hyndman and Fan, 1996; the
    default of numpy).

    Raises:
        ValueError: there are no values, or ``share`` is no share.
    """
    return quantiles(values, (share,))[0]


def quantiles(values: Iterable[float], shares: Iterable[float]) -> tuple[float, ...]:
    """Return several quantiles of the same values, as :func:`quantile` does.

    Raises:
        ValueError: there are no values, or a share is none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values have no quantiles")
    return tuple(_at(ordered, share) for share in shares)


def _at(ordered: list[float], share: float) -> float:
    if not 0 <= share <= 1:
        raise ValueError(f"a quantile needs a share between 0 and 1, not {share}")
    place = share * (len(ordered) - 1)
    index = floor(place)
    if index + 1 == len(ordered):
        return ordered[index]
    low, high = ordered[index], ordered[index + 1]
    return low + (place - index) * (high - low)
