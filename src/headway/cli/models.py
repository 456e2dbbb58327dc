"""``headway models``: the models that Headway knows by name, and which of them are here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headway.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from headway.models.catalog import ModelEntry


def configure(parser: argparse.ArgumentParser) -> None:
    """Nothing beside --json."""


def run(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    from headway.models.catalog import list_models

    entries = list_models()
    if args.json:
        print_json({"models": [_as_json(entry) for entry in entries]})
    else:
        print_rows([("NAME", "SIZE", "CACHED", "DESCRIPTION"), *map(_row, entries)])
    return 0


def _as_json(entry: ModelEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "description": entry.description,
        "licence": entry.licence,
        "size_bytes": entry.size_bytes,
        "cached": entry.cached,
        "path": str(entry.path),
    }


def _row(entry: ModelEntry) -> tuple[str, ...]:
    size = f"{entry.size_bytes / 2**20:.0f} MiB"
    return entry.name, size, "yes" if entry.cached else "no", entry.description
