"""Straight lines between measured points, in any number of dimensions.

The points need not form a full grid: along each axis a node has points of its own, as where two
grids were measured, one coarse and one fine. Lines are straight in the plain values. Logarithms
would be wrong: of a time that grows evenly they overestimate the middle of a doubling by 6 %.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

Key = tuple[float, ...]


class Grid:
    """Measured values over ``num_axes`` coordinates.

    Below the first point of an axis the value stays that of the first: nothing costs less than the
    least that was measured. Beyond the last one it follows the line of the last two, and
    :meth:`covers` says that it does.
    """

    __slots__ = ("_nodes", "_points", "_values", "num_axes")

    def __init__(self, rows: Iterable[tuple[Key, float]]) -> None:
        """Take rows of (coordinates, value); of equal coordinates the last one counts."""
        by_first: dict[float, list[tuple[Key, float]]] = {}
        for (first, *rest), value in rows:
            by_first.setdefault(first, []).append((tuple(rest), value))
        if not by_first:
            raise ValueError("a grid needs points")
        self._points: Sequence[float] = sorted(by_first)
        columns = [by_first[point] for point in self._points]
        self.num_axes = 1 + len(columns[0][0][0])
        self._values: list[float] = []
        self._nodes: list[Grid] = []
        if self.num_axes == 1:
            self._values = [column[-1][1] for column in columns]
        else:
            self._nodes = [Grid(column) for column in columns]

    def at(self, *key: float) -> float:
        """Return the value at these coordinates."""
        return self._at(key, 0)

    def rows(self) -> Iterator[tuple[Key, float]]:
        """Yield the points, as they were given."""
        if not self._nodes:
            yield from (
                ((point,), value) for point, value in zip(self._points, self._values, strict=True)
            )
        for point, node in zip(self._points, self._nodes, strict=False):
            yield from (((point, *key), value) for key, value in node.rows())

    def covers(self, *key: float) -> bool:
        """Whether the coordinates are not beyond what was measured."""
        return self._covers(key, 0)

    def _at(self, key: Key, axis: int) -> float:
        points, place = self._points, key[axis]
        last = len(points) - 1
        index = bisect_right(points, place)
        if index == 0 or last == 0:
            return self._node(0, key, axis)
        index = min(index, last)
        low, high = points[index - 1], points[index]
        share = (place - low) / (high - low)
        before = self._node(index - 1, key, axis) if share != 1 else 0.0
        after = self._node(index, key, axis) if share != 0 else 0.0
        return before + share * (after - before) if share not in (0, 1) else before + after

    def _node(self, index: int, key: Key, axis: int) -> float:
        return self._nodes[index]._at(key, axis + 1) if self._nodes else self._values[index]

    def _covers(self, key: Key, axis: int) -> bool:
        points, place = self._points, key[axis]
        if place > points[-1]:
            return False
        if not self._nodes:
            return True
        index = max(bisect_right(points, place) - 1, 0)
        around = self._nodes[index : index + 2] if place > points[index] else [self._nodes[index]]
        return all(node._covers(key, axis + 1) for node in around)
