"""What commands print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence


def print_json(value: object) -> None:
    """Print one JSON object on a line."""
    print(json.dumps(value))


def print_rows(rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print rows with their columns aligned."""
    for line in columns(rows, indent=indent):
        print(line)


def columns(rows: Iterable[Sequence[str]], *, indent: str = "") -> Iterator[str]:
    """Yield a line for each row, with their columns aligned."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield (indent + "  ".join(cells)).rstrip()


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each warning as a line on standard error."""
    for warning in warnings:
        print(f"headway: warning: {warning}", file=sys.stderr)
