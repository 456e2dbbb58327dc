"""What it costs that the contexts of a batch's decodes differ.

Attention is measured with contexts of one length. Where they differ, part of the device waits for
the longest: ``t = t(mean) + alpha * (t(longest) - t(mean))``. A table gives ``alpha`` by ranges: of
prefill tokens beside, of the number of decodes, of the spread (mean - shortest) / (longest -
shortest), of the longest context, and of what the prefill has cached.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from statistics import fmean

_LABEL = re.compile(r"(<=|>|=)(\d+)(k?)%?$")

Labels = tuple[str, str, str, str]
"""As in the files: ``n<=16``, ``sr<=40%`` or ``sr>70%``, ``kvB<=4k``, ``kp=0`` or ``kp<=512``."""


class SkewTable:
    """The measured alphas. Where a range was not measured, those of the same prefill tokens count.

    Raises:
        ValueError: there are no rows, or a label is none.
    """

    def __init__(self, rows: Iterable[tuple[float, Labels, float]]) -> None:
        """Take rows of (prefill tokens, labels, alpha)."""
        self._rows = tuple(rows)
        self._alphas: dict[tuple[float, ...], float] = {}
        by_chunk: dict[float, list[float]] = {}
        for num_prefill_tokens, labels, alpha in self._rows:
            self._alphas[num_prefill_tokens, *map(_end, labels)] = alpha
            by_chunk.setdefault(num_prefill_tokens, []).append(alpha)
        if not by_chunk:
            raise ValueError("a table of skew needs rows")
        self._defaults = {chunk: fmean(alphas) for chunk, alphas in by_chunk.items()}
        self._ends = [sorted({key[axis] for key in self._alphas}) for axis in range(1, 5)]

    def rows(self) -> tuple[tuple[float, Labels, float], ...]:
        """Return the rows, as they were given."""
        return self._rows

    def alpha(
        self,
        num_prefill_tokens: int,
        num_decodes: int,
        spread: float,
        longest: int,
        num_cached: int,
    ) -> float:
        """Return what part of the way to the time of the longest context the step goes."""
        chunk = min(self._defaults, key=lambda each: abs(each - num_prefill_tokens))
        if num_prefill_tokens and chunk == 0:
            chunk = min(each for each in self._defaults if each)
        values = (num_decodes, 100 * spread, longest, num_cached)
        key = tuple(map(_range_of, self._ends, values))
        return self._alphas.get((chunk, *key), self._defaults[chunk])


def _end(label: str) -> float:
    """Return the upper end of the range that a label names; that of the last one has none."""
    found = _LABEL.search(label)
    if found is None:
        raise ValueError(f"{label!r} is no label of a range")
    sign, number, thousands = found.groups()
    return float("inf") if sign == ">" else float(number) * (1024 if thousands else 1)


def _range_of(ends: list[float], value: float) -> float:
    return ends[min(bisect_left(ends, value), len(ends) - 1)]
