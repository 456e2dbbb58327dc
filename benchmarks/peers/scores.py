"""Log-probabilities of a text as engines see them, and how far they are from exact ones.

Needs nothing but NumPy: workers use it in their own environments. As in llama.cpp's
``llama-perplexity``, text is cut into windows, and the second half of each is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

#: of an engine that does not hand out all log-probabilities: so many for each position
MOST_LIKELY: Final = 256


def scored(length: int) -> slice:
    """Return the positions of a window whose predictions are scored: those of the second half."""
    return slice(length // 2, length - 1)


def save(path: str, windows: Iterable[Any]) -> None:
    """Write log-probabilities, windows × scored positions × vocabulary, from logits or the like.

    Each window has values for all its positions; where they are NaN they stay so.
    """
    kept = [_log_softmax(values[scored(len(values))]) for values in windows]
    with open(path, "wb") as file:  # given a name, numpy would change it
        np.save(file, np.stack(kept))


def filled(rows: Sequence[Mapping[int, float]], length: int, vocab_size: int) -> Floats:
    """Return known log-probabilities as an array; NaN is what is not known.

    ``rows[i]`` is the prediction after position ``i``.
    """
    values = np.full((length, vocab_size), np.nan, np.float32)
    for row, known in zip(values, rows, strict=False):
        row[list(known)] = list(known.values())
    return values


def _log_softmax(values: Any) -> Floats:
    """Normalise whole rows; of rows with NaN the known ones are log-probabilities already."""
    wide = np.asarray(values, dtype=np.float64)
    if np.isnan(wide).any():
        return np.asarray(wide, dtype=np.float32)
    wide = wide - wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return np.asarray(wide, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Distance:
    """Mean Kullback-Leibler divergence in nats, and how often the likeliest token is the same."""

    mean_kl: float
    top_1: float
    positions: int


def distance(exact: Floats, seen: Floats) -> Distance:
    """Compare log-probabilities. What ``seen`` does not know counts as one outcome together.

    So where it does not know all, the divergence is a lower bound.
    """
    divergences: list[npt.NDArray[np.float64]] = []
    equal: list[npt.NDArray[np.bool_]] = []
    for expected, found in zip(exact, seen, strict=True):  # a window at a time, for the memory
        divergences.append(_divergence(expected.astype(np.float64), found.astype(np.float64)))
        equal.append(np.nanargmax(found, axis=-1) == expected.argmax(axis=-1))
    every = np.concatenate(divergences)
    return Distance(float(every.mean()), float(np.concatenate(equal).mean()), len(every))


def _divergence(
    expected: npt.NDArray[np.float64], found: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    known = ~np.isnan(found)
    p = np.exp(expected)
    terms = np.where(known, p * (expected - np.where(known, found, 0.0)), 0.0).sum(axis=-1)
    rest = np.where(known, 0.0, p).sum(axis=-1)
    others = 1 - np.where(known, np.exp(np.where(known, found, 0.0)), 0.0).sum(axis=-1)
    smallest = np.finfo(np.float64).tiny
    together = rest * (np.log(np.maximum(rest, smallest)) - np.log(np.maximum(others, 1e-9)))
    total: npt.NDArray[np.float64] = terms + np.where(known.all(axis=-1), 0.0, together)
    return total
