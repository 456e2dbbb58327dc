"""What was measured, on which machine and when: kept beside the pages, which are made from it."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.lab.bench import Bench
from benchmarks.lab.page import Measurement
from benchmarks.peers.machine import processor
from headway.errors import UsageError
from headway.executors.cpu import usable_cores

FILE = "measured.json"
_Outcome = TypeVar("_Outcome")


def now(bench: Bench, outcome: _Outcome, repetitions: int) -> Measurement[_Outcome]:
    """Return a measurement that was just made."""
    today = datetime.datetime.now(datetime.UTC).date()
    return Measurement(
        outcome, bench.name, processor(), usable_cores(), today.isoformat(), repetitions
    )


def read(folder: Path, name: str, outcome: type[_Outcome]) -> Measurement[_Outcome]:
    """Return what was measured for a page.

    Raises:
        UsageError: nothing was, or it is of another version.
    """
    found = _all(folder).get(name)
    if found is None:
        raise UsageError(f"nothing was measured for {name} in {folder}: leave out --saved")
    try:
        return msgspec.convert(found, Measurement[outcome])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise UsageError(f"{folder / FILE}: {name}: {error}; measure it again") from None


def keep(folder: Path, measurements: dict[str, Measurement[Any]]) -> None:
    """Write measurements over those that are there."""
    kept = _all(folder) | {name: asdict(each) for name, each in measurements.items()}
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(kept.items()))), indent=1)
    (folder / FILE).write_bytes(text + b"\n")


def _all(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    return msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
