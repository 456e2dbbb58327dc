"""How figures over several seeds are shown."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from headway.planning.fleets import Spread
from headway.report.text import duration, percent


def seconds(value: float) -> str:
    """Return a time; a dash if it is infinite, since nothing was measured."""
    return duration(value if isfinite(value) else None)


def share_of(each: Spread) -> str:
    """Return a share over the seeds, with its range if there is one."""
    if each.least == each.most:
        return percent(each.mean)
    low, high = percent(each.least).removesuffix(" %"), percent(each.most)
    return f"{percent(each.mean)} ({low} – {high})"


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return values for JSON, which knows no infinity."""
    return {key: value if isfinite(value) else None for key, value in values.items()}
