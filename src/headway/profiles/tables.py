"""Step times from measured kernels: the profiles that LLMServingSim publishes.

Their files have the time of one call on one device, by a layer-wise profiler (Cho et al.,
"LLMServingSim 2.0", 2025; casys-kaist/LLMServingSim, MIT). No launch gaps, no host time, no
collectives are in them: those are to be declared.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headway.profiles.collective import AllReduce
from headway.profiles.errors import ProfileError
from headway.profiles.grid import Grid
from headway.profiles.shape import StepShape
from headway.profiles.skew import SkewTable

_LAYERS = {
    "layernorm": 2,
    "qkv_proj": 1,
    "qk_norm": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
}
"""Calls in each layer of the model; only some have ``qk_norm``."""
_ONCE = ("embedding", "final_layernorm")
_MAY_LACK = {"qk_norm"}
_BY_SEQUENCE = ("lm_head", "sampler")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the tables do not say of the model that they were measured on.

    Attributes:
        num_layers: how often a layer's calls occur.
        hidden_size: elements of an activation, for the collectives.
        element_bytes: of an activation.
    """

    num_layers: int
    hidden_size: int
    element_bytes: int = 2


class KernelTables:
    """Implements :class:`headway.profiles.shape.StepCost` on measured kernels.

    Args:
        dense: microseconds of each call by tokens in the step.
        per_sequence: microseconds of each call by sequences in the step.
        attention: microseconds of one attention call.
        model: of which model.
        all_reduce: between the devices of a tensor-parallel model; None is one device.
    """

    def __init__(
        self,
        dense: Mapping[str, Grid],
        per_sequence: Mapping[str, Grid],
        attention: AttentionTable,
        model: ModelFacts,
        all_reduce: AllReduce | None = None,
    ) -> None:
        self.dense = dense
        self.per_sequence = per_sequence
        self.attention = attention
        self.model = model
        self.all_reduce = all_reduce
        #: by tokens, and by sequences: few differ, and each is asked for in thousands of steps
        self._token_us: dict[int, float] = {}
        self._sequence_us: dict[int, float] = {}

    def seconds(self, shape: StepShape) -> float:
        """Return the predicted time of a step; 0 if it computes nothing."""
        num_tokens, num_sequences = shape.num_tokens, shape.num_sequences
        if num_tokens == 0:
            return 0.0
        token_us = self._token_us.get(num_tokens)
        if token_us is None:
            token_us = self._token_us[num_tokens] = self._by_tokens(num_tokens)
        sequence_us = self._sequence_us.get(num_sequences)
        if sequence_us is None:
            sequence_us = sum(grid.at(num_sequences) for grid in self.per_sequence.values())
            self._sequence_us[num_sequences] = sequence_us
        attention_us = self.model.num_layers * self.attention.microseconds(shape)
        return 1e-6 * (token_us + sequence_us + attention_us)

    def covers(self, shape: StepShape) -> bool:
        """Whether the step lies within what was measured."""
        return (
            all(grid.covers(shape.num_tokens) for grid in self.dense.values())
            and all(grid.covers(shape.num_sequences) for grid in self.per_sequence.values())
            and self.attention.covers(shape)
        )

    def _by_tokens(self, num_tokens: int) -> float:
        dense, model = self.dense, self.model
        once = sum(dense[name].at(num_tokens) for name in _ONCE)
        layer = sum(
            calls * dense[name].at(num_tokens) for name, calls in _LAYERS.items() if name in dense
        )
        if self.all_reduce is not None:
            num_bytes = num_tokens * model.hidden_size * model.element_bytes
            layer += 2 * 1e6 * self.all_reduce.seconds(num_bytes)
        return once + model.num_layers * layer


class AttentionTable:
    """Attention of prefills, of decodes, and of both in one call, which is not their sum.

    Several prompts in a step were not measured: what the others cost by themselves takes the place
    of what as many tokens of one prompt cost.

    Args:
        prefill: microseconds by (chunk, cached).
        decode: by (number, context).
        mixed: by (chunk, cached, number, context).
        skew: what differing contexts cost; None takes the mean context for all.
        adds_parts: take the sum of both parts for the mixed call: wrong, to see how wrong it is.
    """

    def __init__(
        self,
        prefill: Grid,
        decode: Grid,
        mixed: Grid,
        skew: SkewTable | None = None,
        *,
        adds_parts: bool = False,
    ) -> None:
        self.prefill = prefill
        self.decode = decode
        self.mixed = mixed
        self.skew = skew
        self.adds_parts = adds_parts

    def microseconds(self, shape: StepShape) -> float:
        """Return the time of the step's attention in one layer."""
        chunks, num_decodes = shape.chunks, shape.num_decodes
        if num_decodes == 0:
            return sum(self.prefill.at(length, cached) for cached, length in chunks)
        if not chunks:
            return self._skewed(lambda kv: self.decode.at(num_decodes, kv), shape, 0, 0)
        apart = sum(self.prefill.at(length, cached) for cached, length in chunks)
        if self.adds_parts:
            return apart + self._skewed(lambda kv: self.decode.at(num_decodes, kv), shape, 0, 0)
        if len(chunks) == 1:
            cached, length = chunks[0]
            correction = 0.0
        else:
            cached, length = 0, sum(chunk.length for chunk in chunks)
            correction = apart - self.prefill.at(length, 0)

        def mixed(context: float) -> float:
            return self.mixed.at(length, cached, num_decodes, context)

        return self._skewed(mixed, shape, length, cached) + correction

    def covers(self, shape: StepShape) -> bool:
        """Whether the step's attention lies within what was measured."""
        lengths, mean = [c.length for c in shape.chunks], _mean(shape)
        if shape.num_decodes == 0:
            return all(self.prefill.covers(c.length, c.num_cached) for c in shape.chunks)
        if not lengths:
            return self.decode.covers(shape.num_decodes, mean)
        cached = shape.chunks[0].num_cached if len(lengths) == 1 else 0
        return self.mixed.covers(sum(lengths), cached, shape.num_decodes, mean)

    def _skewed(
        self, at: Callable[[float], float], shape: StepShape, length: int, cached: int
    ) -> float:
        mean, longest, shortest = _mean(shape), shape.longest_decode, shape.shortest_decode
        level = at(mean)
        if self.skew is None or longest <= mean:
            return level
        excess = at(longest) - level
        if excess <= 0:
            return level
        spread = (mean - shortest) / (longest - shortest)
        alpha = self.skew.alpha(length, shape.num_decodes, spread, longest, cached)
        return level + alpha * excess


def _mean(shape: StepShape) -> float:
    return shape.decode_context / shape.num_decodes if shape.num_decodes else 0.0


# ---------------------------------------------------------------- files


def read_kernel_tables(
    folder: Path,
    model: ModelFacts,
    *,
    all_reduce: AllReduce | None = None,
    with_skew: bool = True,
    adds_parts: bool = False,
) -> KernelTables:
    """Read a bundle of ``dense.csv``, ``per_sequence.csv``, ``attention.csv``, ``skew_fit.csv``.

    Raises:
        ProfileError: a file is missing, or is none of these; the message names the line.
    """
    dense = _read_layers(folder / "dense.csv", "tokens")
    missing = {*_LAYERS, *_ONCE} - _MAY_LACK - dense.keys()
    if missing:
        raise ProfileError(f"{folder / 'dense.csv'} has no {', '.join(sorted(missing))}")
    per_sequence = _read_layers(folder / "per_sequence.csv", "sequences")
    if set(per_sequence) != set(_BY_SEQUENCE):
        raise ProfileError(f"{folder / 'per_sequence.csv'} needs {' and '.join(_BY_SEQUENCE)}")
    skew = _read_skew(folder / "skew_fit.csv") if with_skew else None
    attention = _read_attention(folder / "attention.csv", skew, adds_parts)
    return KernelTables(dense, per_sequence, attention, model, all_reduce)


_Row = Mapping[str, str]
_T = TypeVar("_T")


def _rows(path: Path, convert: Callable[[_Row], _T]) -> Iterator[_T]:
    line = 1
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                line = reader.line_num
                yield convert(row)
    except OSError as error:
        raise ProfileError(f"{path} can't be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        what = f"no column {error}" if isinstance(error, KeyError) else str(error)
        raise ProfileError(f"{path}, line {line}: {what}") from error


def _read_layers(path: Path, axis: str) -> dict[str, Grid]:
    rows: dict[str, list[tuple[tuple[float, ...], float]]] = {}
    found = _rows(path, lambda r: (r["layer"], (float(r[axis]),), float(r["time_us"])))
    for layer, key, time_us in found:
        rows.setdefault(layer, []).append((key, time_us))
    return {layer: Grid(points) for layer, points in rows.items()}


_ATTENTION_AXES = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


def _read_attention(path: Path, skew: SkewTable | None, adds_parts: bool) -> AttentionTable:
    prefill: list[tuple[tuple[float, ...], float]] = []
    decode: list[tuple[tuple[float, ...], float]] = []
    mixed: list[tuple[tuple[float, ...], float]] = []
    rows = _rows(path, lambda r: ([int(r[axis]) for axis in _ATTENTION_AXES], float(r["time_us"])))
    for (chunk, cached, number, context), time_us in rows:
        if chunk and number:
            mixed.append(((chunk, cached, number, context), time_us))
        elif chunk:
            prefill.append(((chunk, cached), time_us))
        else:
            decode.append(((number, context), time_us))
    if not (prefill and decode and mixed):
        raise ProfileError(f"{path} needs prefills, decodes, and both in one call")
    return AttentionTable(Grid(prefill), Grid(decode), Grid(mixed), skew, adds_parts=adds_parts)


def _read_skew(path: Path) -> SkewTable:
    rows = _rows(
        path,
        lambda r: (
            float(r["pc"]),
            (r["n_label"], r["skew_rate_label"], r["kv_big_label"], r["kp_label"]),
            float(r["alpha"]),
        ),
    )
    try:
        return SkewTable(rows)
    except ValueError as error:
        raise ProfileError(f"{path}: {error}") from error
