"""Small charts as SVG, drawn by hand; colours come from the page's style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from headway.report.scales import Scale

WIDTH, HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 30

Point = tuple[float, float]

#: lines that a style has colours for; further ones begin again
NUM_COLOURS = 6


class Chart:
    """One chart: axes first, then what is drawn on them, then the text of the element."""

    def __init__(self, x: Scale, y: Scale, *, description: str) -> None:
        self._x = x
        self._y = y
        self._description = description
        self._parts: list[str] = []
        self._grid()

    def line(self, points: Sequence[Point], colour: int, title: str) -> None:
        """Draw a line through points."""
        if points:
            path = "M" + "L".join(f"{self._px(x):.1f} {self._py(y):.1f}" for x, y in points)
            self._parts.append(
                f'<path class="line c{colour % NUM_COLOURS}" d="{path}">{_title(title)}</path>'
            )

    def steps(self, points: Sequence[Point], colour: int, title: str) -> None:
        """Draw a line that stays level until the next point."""
        if not points:
            return
        path = f"M{self._px(points[0][0]):.1f} {self._py(points[0][1]):.1f}"
        path += "".join(f"H{self._px(x):.1f}V{self._py(y):.1f}" for x, y in points[1:])
        self._parts.append(
            f'<path class="line c{colour % NUM_COLOURS}" d="{path}">{_title(title)}</path>'
        )

    def dots(self, points: Iterable[Point], colour: int, title: str) -> None:
        """Draw dots: one path, so that thousands stay small."""
        path = "".join(f"M{self._px(x):.1f} {self._py(y):.1f}h0" for x, y in points)
        if path:
            self._parts.append(
                f'<path class="dots c{colour % NUM_COLOURS}" d="{path}">{_title(title)}</path>'
            )

    def upright(self, x: float, colour: int, title: str) -> None:
        """Draw a dashed line from bottom to top, as for a target."""
        place = f"{self._px(x):.1f}"
        self._parts.append(
            f'<path class="target c{colour % NUM_COLOURS}" '
            f'd="M{place} {_TOP}V{HEIGHT - _BOTTOM}">{_title(title)}</path>'
        )

    def render(self) -> str:
        """Return the element."""
        label = escape(self._description, quote=True)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
            + "".join(self._parts)
            + "</svg>"
        )

    def _grid(self) -> None:
        left, right, bottom = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
        for place, label in self._y.ticks():
            y = bottom - place * (bottom - _TOP)
            self._parts.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
            self._parts.append(
                f'<text class="tick end" x="{left - 8}" y="{y + 4:.1f}">{escape(label)}</text>'
            )
        for place, label in _apart(self._x.ticks()):
            x = left + place * (right - left)
            self._parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
            self._parts.append(
                f'<text class="tick mid" x="{x:.1f}" y="{bottom + 19}">{escape(label)}</text>'
            )

    def _px(self, value: float) -> float:
        return _LEFT + self._x.place(value) * (WIDTH - _LEFT - _RIGHT)

    def _py(self, value: float) -> float:
        return HEIGHT - _BOTTOM - self._y.place(value) * (HEIGHT - _BOTTOM - _TOP)


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out ticks whose labels would touch."""
    kept: list[tuple[float, str]] = []
    for place, label in ticks:
        needed = 0.014 * max(len(label), 4)
        if not kept or place - kept[-1][0] >= needed:
            kept.append((place, label))
    return kept


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"
