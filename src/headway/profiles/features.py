"""The features of a step in which its time is taken to be linear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headway.profiles.shape import StepShape


def _pairs(shape: StepShape) -> float:
    """Return the pairs of positions of which one attends to the other, in chunks."""
    return sum(length * (cached + (length + 1) / 2) for cached, length in shape.chunks)


def _rows_above(number: int) -> Callable[[StepShape], float]:
    """Return a feature for rows that cost more than the first: those hide behind the weights."""
    return lambda shape: max(shape.num_tokens - number, 0)


FEATURES: Mapping[str, Callable[[StepShape], float]] = {
    "step": lambda _: 1.0,
    "prefill_tokens": lambda shape: shape.num_prefill_tokens,
    "prefill_pairs": _pairs,
    "decodes": lambda shape: shape.num_decodes,
    "rows_above_8": _rows_above(8),
    "rows_above_12": _rows_above(12),
    "rows_above_32": _rows_above(32),
    "rows_above_64": _rows_above(64),
    "rows_above_128": _rows_above(128),
    "decode_context": lambda shape: shape.decode_context,
    "mixed": lambda shape: float(bool(shape.chunks) and shape.num_decodes > 0),
    "swapped_blocks": lambda shape: shape.num_swapped_blocks,
}
"""What the device does. Names are those of profile files."""

HOST_FEATURES: Mapping[str, Callable[[StepShape], float]] = {
    "step": lambda _: 1.0,
    "sequences": lambda shape: shape.num_sequences,
    "chunks": lambda shape: len(shape.chunks),
}
"""What the host does for a step."""


class ObservedStep(NamedTuple):
    """A line of a step log: what was computed, and how long it took.

    ``host_s`` is what the host needed beside the device's ``seconds``; 0 is not known.
    """

    shape: StepShape
    seconds: float
    host_s: float = 0.0
