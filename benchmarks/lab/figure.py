"""Figures of the lab: a chart of lines as one SVG file that needs nothing around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log2

from headway.report.scales import Scale
from headway.report.style import CHARTS, COLOURS
from headway.report.svg import HEIGHT, NUM_COLOURS, WIDTH, Chart, Point

_TITLE, _LEGEND_ROW = 44, 20
#: a legend has three columns, unless a label is longer than this
_LONG_LABEL = 22
_STYLE = """
svg{font-family:system-ui,sans-serif}
.dots{stroke-width:6;opacity:1}
.back{fill:var(--card)}
.title{fill:var(--fg);font-size:15px;font-weight:600}
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing: the end of its file's name, what it shows in words, and the SVG."""

    name: str
    shows: str
    svg: str


@dataclass(frozen=True, slots=True)
class Doublings:
    """A scale for numbers of things, on which each doubling is as far as the one before.

    ``at`` has the numbers that get a tick, from the lowest to the highest.
    """

    at: Sequence[int]

    def place(self, value: float) -> float:
        """Return where a value lies."""
        low, high = self.at[0], self.at[-1]
        within = min(max(value, low), high)
        return log2(within / low) / (log2(high / low) or 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the chosen numbers."""
        return [(self.place(value), f"{value:,}") for value in self.at]


def figure(
    name: str,
    title: str,
    axes: tuple[tuple[str, Scale], tuple[str, Scale]],
    lines: Mapping[str, Sequence[Point]],
    uprights: Mapping[str, float] | None = None,
) -> Figure:
    """Return a figure.

    Args:
        name: the end of its file's name.
        title: what it shows.
        axes: name and scale of the horizontal one, and of the vertical one.
        lines: points by what they are of; each point is marked.
        uprights: dashed lines from bottom to top, as for a target; they have their own colours.
    """
    (x_name, x), (y_name, y) = axes
    uprights = uprights or {}
    shows = f"{title}: {y_name} by {x_name}"
    chart = Chart(x, y, description=shows)
    for colour, (label, points) in enumerate(lines.items()):
        chart.line(points, colour, label)
        chart.dots(points, colour, label)
    for colour, (label, place) in enumerate(uprights.items(), len(lines)):
        chart.upright(place, colour, label)
    labels = [*lines, *uprights]
    head = f"{y_name}, by {x_name}"
    return Figure(name, shows, _alone(title, head, chart.render(), labels))


def _alone(title: str, head: str, chart: str, labels: Sequence[str]) -> str:
    """Put a title above a chart and a legend below it, with the style of both."""
    num_columns = 2 if max(map(len, labels)) > _LONG_LABEL else 3
    num_rows = -(-len(labels) // num_columns)
    bottom = _TITLE + HEIGHT + 8
    height = bottom + num_rows * _LEGEND_ROW + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">\n<style>{COLOURS}{CHARTS}{_STYLE}</style>\n'
        f'<rect class="back" width="{WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="12" y="20">{escape(title)}</text>\n'
        f'<text class="tick" x="12" y="38">{escape(head)}</text>\n'
        f'<svg y="{_TITLE}" width="{WIDTH}" height="{HEIGHT}">{chart}</svg>\n'
        + "".join(_key(place, num_columns, label, bottom) for place, label in enumerate(labels))
        + "</svg>\n"
    )


def _key(place: int, num_columns: int, label: str, top: int) -> str:
    row, column = divmod(place, num_columns)
    x, y = 16 + column * (WIDTH - 16) // num_columns, top + row * _LEGEND_ROW + 8
    return (
        f'<path class="line c{place % NUM_COLOURS}" d="M{x} {y}h14"/>'
        f'<text class="tick" x="{x + 20}" y="{y + 4}">{escape(label)}</text>\n'
    )
