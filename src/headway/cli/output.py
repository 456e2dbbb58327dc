"""What commands print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence


def print_json(value: object) -> None:
    """Print one JSON object on a line."""
    print(json.dumps(value))


def print_rows(rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print rows with their columns aligned."""
    from headway.report.text import left_aligned

    for line in left_aligned(rows):
        print(indent + line)


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each warning as a line on standard error."""
    for warning in warnings:
        print(f"headway: warning: {warning}", file=sys.stderr)
