"""What the commands of this package have in common: ``--json``, and a table without it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headway.errors import UsageError


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--json``; the module's docstring says what the command does."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n\n")[0])
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def show(outcome: Any, table: str, *, as_json: bool) -> None:
    """Print the outcome, a dataclass, as one JSON object, or else its table."""
    print(json.dumps(asdict(outcome)) if as_json else table)


def main(doc: str | None, demonstrate: Callable[[], Any], table: Callable[[Any], str]) -> int:
    """Run a demonstration that needs nothing but ``--json``; return the exit status."""
    arguments = parser(doc).parse_args()

    def command() -> None:
        outcome = demonstrate()
        show(outcome, table(outcome), as_json=arguments.json)

    return status_of(command)


def status_of(command: Callable[[], int | None]) -> int:
    """Run a command; return its exit status, which is 2 where what it was given can't be used."""
    try:
        return command() or 0
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


def at_least_one(text: str) -> int:
    """Parse a number of things."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number
