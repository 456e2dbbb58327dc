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
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random

from headway.core.request import PromptHashes
from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError
from headway.workload.reading import Row, json_rows, read_rows

#: prompt tokens that one entry of ``hash_ids`` stands for
MOONCAKE_STRETCH_TOKENS = 512
_AZURE_COLUMNS = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}


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

    return read_rows(path, _azure_rows, arrival)


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

    return read_rows(path, json_rows, arrival)


def _azure_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = _AZURE_COLUMNS.difference(reader.fieldnames or ())
        if missing:
            raise WorkloadError(f"no column {', '.join(sorted(missing))}")
        for row in reader:
            yield reader.line_num, row
