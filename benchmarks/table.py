"""Tables of text: aligned for a terminal, or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Rows = Sequence[Sequence[str]]


def aligned(head: Sequence[str], rows: Rows) -> str:
    """Return the rows under their heads, columns aligned: the first left, all others right."""
    everything = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    return "\n".join(_line(row, widths) for row in everything)


def markdown(head: Sequence[str], rows: Rows) -> str:
    """Return the rows as a Markdown table."""
    marks = ("---" for _ in head)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, tuple(marks), *rows))


def _line(row: Iterable[str], widths: Sequence[int]) -> str:
    first, *others = (
        (cell.ljust if not number else cell.rjust)(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join((first, *others)).rstrip()
