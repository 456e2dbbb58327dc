"""A histogram that is cheap to fill: the engine observes several values in every step.

The library's walks over its buckets in Python, and takes two locks for each value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString


class Series:
    """The values of one set of labels. One thread observes; any may read.

    Args:
        bounds: upper bounds of the buckets, in order; the last is infinity.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket that holds it."""
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def totals(self) -> list[float]:
        """Return for each bound how many values are at most that."""
        return list(accumulate(tuple(self._counts)))

    @property
    def sum(self) -> float:
        """All values together."""
        return self._sum


class Histogram(Collector):
    """A metric with the samples of ``prometheus_client.Histogram``, by the values of its labels.

    Without labels there is one series from the beginning; else each comes when it is asked for.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        meaning: str,
        labels: Sequence[str],
        bounds: Iterable[float],
    ) -> None:
        self._name, self._meaning, self._labels = name, meaning, labels
        self._bounds = (*map(float, bounds), inf)
        self._bound_names = [_name_of(bound) for bound in self._bounds]
        self._series: dict[tuple[str, ...], Series] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Series:
        """Return the series of these values, one a label."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Series(self._bounds)
        return series

    def describe(self) -> list[Metric]:
        """Name the family, so that no other gets its name."""
        return [self._family()]

    def collect(self) -> list[Metric]:
        """Return the family as it is now."""
        family = self._family()
        for values, series in self._series.copy().items():
            buckets = list(zip(self._bound_names, series.totals(), strict=True))
            family.add_metric(values, buckets, series.sum)
        return [family]

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._meaning, labels=self._labels)


def _name_of(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # the library has no type
