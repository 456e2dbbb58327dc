"""Readers of workloads as other tools write them down: tables of lengths, and saved runs of vLLM.

- CSV with one request a row. Known names of columns: those of LLMServingSim
  (``arrival_time_ns``, ``input_toks``, ``output_toks``), of Vidur (``arrived_at``,
  ``num_prefill_tokens``, ``num_decode_tokens``), and the plain ``at_s``, ``prompt_tokens``,
  ``output_tokens``, with ``class`` and ``tenant`` where they are there. Without a column of times
  all come at once.
- JSON that ``vllm bench serve --save-detailed`` or ``headway bench --detailed`` wrote.
- JSONL of real prompts: ``prompt`` or ``messages``, and where known ``output_tokens``,
  ``timestamp`` (seconds), ``class``, ``tenant``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.workload.arrival import Arrival, Prompt
from headway.workload.errors import WorkloadError
from headway.workload.reading import Row, json_rows, read_rows

#: name of a column → (what it is, by what it is multiplied)
_COLUMNS: Mapping[str, tuple[str, float]] = {
    "at_s": ("at_s", 1.0),
    "arrived_at": ("at_s", 1.0),
    "arrival_time_ns": ("at_s", 1e-9),
    "prompt_tokens": ("prompt_tokens", 1),
    "input_toks": ("prompt_tokens", 1),
    "num_prefill_tokens": ("prompt_tokens", 1),
    "output_tokens": ("output_tokens", 1),
    "output_toks": ("output_tokens", 1),
    "num_decode_tokens": ("output_tokens", 1),
}

#: of English in common vocabularies, for prompts whose length nobody knows
_CHARACTERS_A_TOKEN = 4


def read_csv(path: Path) -> list[Arrival]:
    """Read a table of lengths.

    Raises:
        WorkloadError: the file is missing or is no such table; the message names the line.
    """
    return read_rows(path, _csv_rows, _from_columns)


def read_prompts(path: Path, *, output_tokens: Callable[[], int]) -> list[Arrival]:
    """Read real prompts, by their timestamps; without any, in the order of the file.

    Args:
        path: a JSONL file.
        output_tokens: gives the length of an answer whose line doesn't say it.

    Raises:
        WorkloadError: the file is missing or is no such file; the message names the line.
    """

    def arrival(row: Row) -> Arrival:
        return _from_prompt(json.loads(row["line"]), output_tokens)

    return read_rows(path, json_rows, arrival)


def read_vllm_bench(path: Path) -> list[Arrival]:
    """Read when requests were sent, and how long they were, from a saved run.

    Raises:
        WorkloadError: the file is missing, or was saved without the details.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        columns = [saved[name] for name in ("start_times", "input_lens", "output_lens")]
        rows = sorted(zip(*columns, strict=True))
    except OSError as error:
        raise WorkloadError(f"{path} can't be read: {error.strerror}") from error
    except KeyError as error:
        raise WorkloadError(f"{path} has no {error}: save the run with its details") from error
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"{path} is no saved run: {error}") from error
    arrivals = _from_lists(rows)
    if not arrivals:
        raise WorkloadError(f"{path} has no requests")
    return arrivals


def _from_lists(rows: Sequence[tuple[float, int, int]]) -> list[Arrival]:
    """Leave out requests that failed: they have no answer."""
    origin = rows[0][0] if rows else 0.0
    return [
        Arrival(at_s=start - origin, prompt_tokens=prompt, output_tokens=output)
        for start, prompt, output in rows
        if output > 0
    ]


def _csv_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        known = {_COLUMNS[name][0] for name in reader.fieldnames or () if name in _COLUMNS}
        missing = {"prompt_tokens", "output_tokens"} - known
        if missing:
            raise WorkloadError(f"no column {' or '.join(sorted(missing))}")
        for row in reader:
            yield reader.line_num, row


def _from_columns(row: Row) -> Arrival:
    values: dict[str, float] = {"at_s": 0.0}
    for column, (name, factor) in _COLUMNS.items():
        if row.get(column) not in (None, ""):
            values[name] = float(row[column]) * factor
    return Arrival(
        at_s=values["at_s"],
        prompt_tokens=int(values["prompt_tokens"]),
        output_tokens=int(values["output_tokens"]),
        class_name=row.get("class") or "default",
        tenant=row.get("tenant") or "",
    )


def _from_prompt(values: Any, output_tokens: Callable[[], int]) -> Arrival:
    prompt = _said(values)
    given = next((values[n] for n in ("output_tokens", "max_tokens") if n in values), None)
    num_output = output_tokens() if given is None else _whole("output_tokens", given)
    return Arrival(
        at_s=float(values.get("timestamp", 0.0)),
        prompt_tokens=_whole("prompt_tokens", values.get("prompt_tokens", _estimate(prompt))),
        output_tokens=num_output,
        class_name=_text("class", values.get("class", "default")),
        tenant=_text("tenant", values.get("tenant", "")),
        prompt=prompt,
    )


def _said(values: Any) -> Prompt:
    if not isinstance(values, dict):
        raise WorkloadError("a line must be an object with prompt or messages")
    if ("prompt" in values) == ("messages" in values):
        raise WorkloadError("a line needs either prompt or messages")
    if "prompt" in values:
        return Prompt(text=_text("prompt", values["prompt"]))
    messages = values["messages"]
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise WorkloadError("messages must be a list of objects with role and content")
    return Prompt(messages=tuple(messages))


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and {"role", "content"} <= message.keys()


def _estimate(prompt: Prompt) -> int:
    said = prompt.text or "".join(str(message["content"]) for message in prompt.messages)
    return max(len(said) // _CHARACTERS_A_TOKEN, 1)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise WorkloadError(f"{name} must be a text, not {value!r:.40}")
    return value


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise WorkloadError(f"{name} must be a whole number, not {value!r:.40}")
    return value
