"""The thirteen figures by which a simulated run is compared with a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from headway.metrics.quantiles import quantiles

_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Figure(NamedTuple):
    """A figure: of what, which one, in which unit it is shown, and how many of these a value is."""

    key: str
    unit: str
    scale: float


FIGURES = (
    *(Figure(f"ttft_{what}", "s", 1.0) for what in ("mean", *_SHARES)),
    *(Figure(f"tpot_{what}", "ms", 1e3) for what in ("mean", *_SHARES)),
    *(Figure(f"latency_{what}", "s", 1.0) for what in ("mean", *_SHARES)),
    Figure("throughput", "tokens/s", 1.0),
)

Figures = Mapping[str, float]
"""By key; in seconds, and output tokens a second."""


def figures(
    ttfts_s: Sequence[float],
    tpots_s: Sequence[float],
    latencies_s: Sequence[float],
    throughput: float,
) -> Figures:
    """Return the figures of a run.

    Raises:
        ValueError: nothing was measured.
    """
    found: dict[str, float] = {}
    for name, values in ("ttft", ttfts_s), ("tpot", tpots_s), ("latency", latencies_s):
        for what, value in zip(_SHARES, quantiles(values, _SHARES.values()), strict=True):
            found[f"{name}_{what}"] = value
        found[f"{name}_mean"] = fmean(values)
    return {**found, "throughput": throughput}


def errors(simulated: Figures, real: Figures) -> Figures:
    """Return by how many percent each simulated figure is above the real one."""
    return {each.key: 100 * (simulated[each.key] / real[each.key] - 1) for each in FIGURES}
