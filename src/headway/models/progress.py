"""How long downloads tell a person what they are doing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]
"""Takes one line for a person to read; called now and then, not for each byte."""


def on_standard_error(line: str) -> None:
    """Print the line on standard error."""
    print(line, file=sys.stderr, flush=True)


def megabytes(size: int) -> str:
    """Return a size for people."""
    return f"{size / 1e6:.0f} MB"
