"""A chart of one figure of several things: a bar for each, with its range."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from headway.report.svg import NUM_COLOURS, WIDTH

_LEFT, _RIGHT, _ROW, _THICK = 104, 84, 34, 18


class Bar(NamedTuple):
    """One bar: a name, a value with its range, and how people see the value."""

    name: str
    value: float
    low: float
    high: float
    shown: str


def bars(description: str, each: Sequence[Bar]) -> str:
    """Return the chart, from the first bar at the top; lengths are in proportion from zero on."""
    most = max((bar.high for bar in each), default=0.0) or 1.0
    scale = (WIDTH - _LEFT - _RIGHT) / most
    parts = "".join(_bar(place, bar, scale) for place, bar in enumerate(each))
    height = _ROW * len(each)
    label = escape(description, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{parts}</svg>'


def _bar(place: int, bar: Bar, scale: float) -> str:
    middle = _ROW * (place + 0.5)
    end, text = _LEFT + bar.value * scale, middle + 4
    low, high = _LEFT + bar.low * scale, _LEFT + bar.high * scale
    return (
        f'<text class="tick end" x="{_LEFT - 8}" y="{text:.1f}">{escape(bar.name)}</text>'
        f'<rect class="bar c{place % NUM_COLOURS}" x="{_LEFT}" y="{middle - _THICK / 2:.1f}" '
        f'width="{end - _LEFT:.1f}" height="{_THICK}"/>'
        f'<path class="grid" d="M{low:.1f} {middle:.1f}H{high:.1f}"/>'
        f'<text class="tick" x="{max(end, high) + 8:.1f}" y="{text:.1f}">{escape(bar.shown)}</text>'
    )
