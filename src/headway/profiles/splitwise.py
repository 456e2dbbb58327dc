"""Step times from the measurements that splitwise-sim publishes: whole models on A100 and H100.

Patel et al., "Splitwise", ISCA 2024 (Mutinifni/splitwise-sim, MIT): prompts of 128 to 8192 tokens,
batches of 1 to 64, measured with an engine of 2023, so decodes have much host time in them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from headway.profiles.errors import ProfileError
from headway.profiles.grid import Grid
from headway.profiles.shape import StepShape

_MIXED = 1.1
"""A step with both takes so many times what as many prompt tokens take: splitwise-sim's factor."""
_FAULT = 0.5
"""A batch that takes less than this share of a smaller one was not computed; it is left out."""

Points = Sequence[tuple[float, float]]


class SplitwiseCosts:
    """Implements :class:`headway.profiles.shape.StepCost`.

    What chunks have cached is not in the measurements, so it costs nothing here.

    Args:
        prompt: (prompt tokens in the step, seconds).
        batch: (decodes in the step, seconds), at a context of ``context`` tokens.
        single: (context, seconds) of one decode.
        context: tokens.
    """

    def __init__(self, prompt: Points, batch: Points, single: Points, context: float) -> None:
        self.prompt, self.batch, self.single, self.context = prompt, batch, single, context
        self._prompt = Grid(((x,), s) for x, s in prompt)
        self._batch = Grid(((x,), s) for x, s in batch)
        self._single = Grid(((x,), s) for x, s in single)

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step; 0 if it computes nothing."""
        if shape.chunks:
            prompt_s = self._prompt.at(shape.num_tokens)
            return prompt_s * (_MIXED if shape.num_decodes else 1.0)
        if shape.num_decodes == 0:
            return 0.0
        mean = shape.decode_context / shape.num_decodes
        longer_s = self._single.at(mean) - self._single.at(self.context)
        return max(self._batch.at(shape.num_decodes) + shape.num_decodes * longer_s, 0.0)

    def covers(self, shape: StepShape) -> bool:
        """Whether the step lies within what was measured."""
        if shape.chunks:
            return self._prompt.covers(shape.num_tokens)
        mean = shape.decode_context / shape.num_decodes if shape.num_decodes else 0.0
        return self._batch.covers(shape.num_decodes) and self._single.covers(mean)


_PROMPT = 512
_TOKENS = 128
_COLUMNS = ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time")


def read_splitwise(path: Path, model: str, hardware: str, num_devices: int) -> SplitwiseCosts:
    """Read ``perf_model.csv`` for one model, device and degree of tensor parallelism.

    Raises:
        ProfileError: it can't be read, or has no such measurements; the message names those it has.
    """
    rows = _rows(path)
    key = (model, hardware, str(num_devices))
    found = rows.get(key)
    if found is None:
        known = ", ".join(sorted(f"{m} on {n} {h}" for m, h, n in rows))
        raise ProfileError(f"{path} has no {model} on {num_devices} {hardware}: it has {known}")
    prompts: dict[float, list[float]] = {}
    batches: dict[float, list[float]] = {}
    singles: dict[float, list[float]] = {}
    for prompt, batch, tokens, prompt_ms, token_ms in found:
        prompts.setdefault(prompt * batch, []).append(prompt_ms)
        if (prompt, tokens) == (_PROMPT, _TOKENS):
            batches.setdefault(batch, []).append(token_ms)
        if (batch, tokens) == (1, _TOKENS):
            singles.setdefault(prompt + tokens / 2, []).append(token_ms)
    return SplitwiseCosts(
        _points(prompts), _points(batches), _points(singles), _PROMPT + _TOKENS / 2
    )


def _rows(path: Path) -> Mapping[tuple[str, str, str], list[tuple[float, ...]]]:
    rows: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    line = 1
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                line = reader.line_num
                key = (row["model"], row["hardware"], row["tensor_parallel"])
                rows.setdefault(key, []).append(tuple(float(row[name]) for name in _COLUMNS))
    except OSError as error:
        raise ProfileError(f"{path} can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        what = f"no column {error}" if isinstance(error, KeyError) else str(error)
        raise ProfileError(f"{path}, line {line}: {what}") from error
    return rows


def _points(measured: Mapping[float, list[float]]) -> Points:
    """Return the medians in seconds, without those that no larger batch can have."""
    points: list[tuple[float, float]] = []
    for place in sorted(measured):
        seconds = median(measured[place]) / 1e3
        if not points or seconds >= _FAULT * points[-1][1]:
            points.append((place, seconds))
    return points
