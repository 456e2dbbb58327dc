"""Readers of published traces of production services.

- Azure 2023 (Patel et al., "Splitwise", ISCA 2024): CSV with ``TIMESTAMP``, ``ContextTokens`` and
  ``GeneratedTokens``, one hour each of a coding and a conversation service.
- Mooncake (Qin et al., FAST 2025): one JSON object a line with ``timestamp`` (ms),
  ``input_length``, ``output_length`` and ``hash_ids``, which name the prompt by blocks of 512
  tokens.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from headway.core.request import PromptHashes
from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError
from headway.workload.transform import in_order

#: prompt tokens that one entry of ``hash_ids`` stands for
MOONCAKE_STRETCH_TOKENS = 512
_AZURE_COLUMNS = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}

Row = Mapping[str, Any]


def read_azure(path: Path, *, class_name: str = "default", tenant: str = "") -> list[Arrival]:
    """Read an Azure 2023 trace; times count from its first request.

    Raises:
        WorkloadError: the file is missing or is no such trace; the message names the line.
    """
    origin: datetime | None = None

    def arrival(row: Row) -> Arrival:
        nonlocal origin
        moment = datetime.fromisoformat(row["TIMESTAMP"])
        origin = moment if origin is None else origin
        return Arrival(
            at_s=(moment - origin).total_seconds(),
            prompt_tokens=int(row["ContextTokens"]),
            output_tokens=int(row["GeneratedTokens"]),
            class_name=class_name,
            tenant=tenant,
        )

    return _read(path, _azure_rows, arrival)


def read_mooncake(
    path: Path,
    random: Random | None = None,
    *,
    jitter_s: float = 3.0,
    class_name: str = "default",
    tenant: str = "",
) -> list[Arrival]:
    """Read a Mooncake trace, with the hashes of its prompts.

    Args:
        path: a JSONL file.
        random: the times of the conversation trace come in ticks of three seconds. With this each
            request is moved on by a part of ``jitter_s``, drawn evenly; None leaves them.
        jitter_s: the distance between two ticks, in seconds.
        class_name: of all requests.
        tenant: of all requests.

    Raises:
        WorkloadError: the file is missing or is no such trace; the message names the line.
    """

    def arrival(row: Row) -> Arrival:
        values = json.loads(row["line"])
        moved_s = random.random() * jitter_s if random is not None else 0.0
        return Arrival(
            at_s=values["timestamp"] / 1000 + moved_s,
            prompt_tokens=values["input_length"],
            output_tokens=values["output_length"],
            class_name=class_name,
            tenant=tenant,
            hashes=PromptHashes(MOONCAKE_STRETCH_TOKENS, tuple(values["hash_ids"])),
        )

    return _read(path, _json_rows, arrival)


def _read(
    path: Path,
    rows: Callable[[Path], Iterator[tuple[int, Row]]],
    arrival: Callable[[Row], Arrival],
) -> list[Arrival]:
    """Turn rows into arrivals in order of time; whatever is wrong is said with its line."""
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


def _azure_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = _AZURE_COLUMNS.difference(reader.fieldnames or ())
        if missing:
            raise WorkloadError(f"no column {', '.join(sorted(missing))}")
        for row in reader:
            yield reader.line_num, row


def _json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, {"line": line}
