"""Reads a saved run: what came when, what the real engine did, and how it was set up."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headway.sim.foreign.figures import Figures, figures
from headway.sim.foreign.setups import Setup
from headway.workload import Arrival, WorkloadError

_READ_LATENCY_S = 0.0008
"""How long the quickest request took from the client's clock to that of the engine's core."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunData:
    """A saved run.

    Attributes:
        arrivals: when the client meant to send each request, and its true lengths.
        shared: of a request, the other one whose prompt begins like its own, and for how many
            blocks.
        real: the figures of the real engine.
        max_num_seqs: sequences that ran at once, at most.
        max_num_batched_tokens: token budget of a step.
        num_blocks: KV blocks that the engine recorded, if it did.
        block_size: positions in a block.
    """

    arrivals: tuple[Arrival, ...]
    shared: Mapping[int, tuple[int, int]]
    real: Figures
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int | None
    block_size: int


def read_run(folder: Path, setup: Setup) -> RunData:
    """Read the files of a run.

    Raises:
        WorkloadError: a file is missing or is none of these, or two don't belong together.
    """
    path = folder / f"vllm_{setup.stem}.meta.json"
    meta = _read(path, lambda: json.loads(path.read_text(encoding="utf-8")))
    requests = _read_requests(folder / f"vllm_{setup.stem}.requests.jsonl")
    arrivals = _read_arrivals(folder / f"{setup.workload}.lengths.csv")
    lengths = [(each.prompt_tokens, each.output_tokens) for each in arrivals]
    if lengths != [(each["input_toks"], each["output_toks"]) for each in requests]:
        raise WorkloadError(f"{folder}: the requests of {setup.stem} are not of {setup.workload}")
    kv_cache = meta.get("kv_cache", {})
    settings = meta["engine_kwargs"]
    return RunData(
        arrivals=arrivals,
        shared=_read_sharing(folder / setup.sharing),
        real=real_figures(requests),
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        num_blocks=kv_cache.get("num_gpu_blocks"),
        block_size=kv_cache.get("block_size", 16),
    )


def real_figures(requests: list[dict[str, Any]]) -> Figures:
    """Return the figures of the real run, counted from the true arrivals.

    Arrivals are by the wall clock, and the rest by the engine's own: the request that was read the
    soonest tells how far the two are apart. When the engine began to look at a request would be no
    arrival: it looks between its steps only.
    """
    apart = min(each["queued_ts"] - each["arrival_time"] for each in requests) - _READ_LATENCY_S
    arrived = [each["arrival_time"] + apart for each in requests]
    first = [each["first_token_ts"] for each in requests]
    last = [each["last_token_ts"] for each in requests]
    counts = [each["output_toks"] for each in requests]
    return figures(
        [token - arrival for token, arrival in zip(first, arrived, strict=True)],
        [(b - a) / (n - 1) for a, b, n in zip(first, last, counts, strict=True) if n > 1],
        [token - arrival for token, arrival in zip(last, arrived, strict=True)],
        sum(counts) / (max(last) - min(arrived)),
    )


def _read(path: Path, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except OSError as error:
        raise WorkloadError(f"{path} can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise WorkloadError(f"{path}: {what}") from error


_REQUEST_KEYS = (
    "arrival_time",
    "queued_ts",
    "first_token_ts",
    "last_token_ts",
    "input_toks",
    "output_toks",
)


def _read_requests(path: Path) -> list[dict[str, Any]]:
    def read() -> list[dict[str, Any]]:
        with path.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        return [{key: row[key] for key in _REQUEST_KEYS} for row in rows]

    return _read(path, read)


def _read_arrivals(path: Path) -> tuple[Arrival, ...]:
    """The lengths were forced, so a request's limit is what it really had."""

    def read() -> tuple[Arrival, ...]:
        with path.open(encoding="utf-8", newline="") as file:
            return tuple(
                Arrival(
                    at_s=int(row["arrival_time_ns"]) / 1e9,
                    prompt_tokens=int(row["input_toks"]),
                    output_tokens=int(row["output_toks"]),
                    max_tokens=int(row["output_toks"]),
                )
                for row in csv.DictReader(file)
            )

    return _read(path, read)


def _read_sharing(path: Path) -> dict[int, tuple[int, int]]:
    def read() -> dict[int, tuple[int, int]]:
        with path.open(encoding="utf-8", newline="") as file:
            return {
                int(row["request"]): (
                    int(row["longest_prefix_with"]),
                    int(row["shared_full_blocks"]),
                )
                for row in csv.DictReader(file)
            }

    return _read(path, read)
