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
    try:
        outcome = demonstrate()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    show(outcome, table(outcome), as_json=arguments.json)
    return 0
