"""Reads files of one request a row; whatever is wrong is said in one line, with its place."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError
from headway.workload.transform import in_order

Row = Mapping[str, Any]


def read_rows(
    path: Path,
    rows: Callable[[Path], Iterator[tuple[int, Row]]],
    arrival: Callable[[Row], Arrival],
) -> list[Arrival]:
    """Turn rows into arrivals in order of time.

    Raises:
        WorkloadError: the file can't be read, has no requests, or a row is none.
    """
    arrivals: list[Arrival] = []
    line = 1
    try:
        for number, row in rows(path):
            line = number
            arrivals.append(arrival(row))
    except OSError as error:
        raise WorkloadError(f"{path} can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, csv.Error, WorkloadError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise WorkloadError(f"{path}, line {line}: {what}") from error
    if not arrivals:
        raise WorkloadError(f"{path} has no requests")
    return in_order(arrivals)


def json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the lines of a JSONL file that are not empty, each under ``line``."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, {"line": line}
