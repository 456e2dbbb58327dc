"""Picks tokens from rows of logits in NumPy: the definition, where no kernel does it.

Everything past the logits is float64. Tokens are in order of their logits, the highest first, of
equals the one with the lowest id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Top = tuple[tuple[int, float], ...]

Ids = npt.NDArray[np.intp]

NOT_FINITE: Final = -1
"""In place of a token: the logits of the row are not all finite."""

NO_TOKEN: Final = -2
"""In place of a token: after its change the highest logit of the row is not finite."""

_FIRST_LOOK: Final = 256
"""How many of the most probable tokens are sorted before it is known that more are needed."""


class Terms(NamedTuple):
    """How one token is picked: the parameters of a draw that come after bias and penalties.

    ``temperature`` 0 takes the highest; ``top_k`` 0 keeps all; ``number`` is in [0, 1).
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    number: float


GREEDY: Final = Terms(0.0, 0, 1.0, 0.0, 0.0)


class Change(NamedTuple):
    """Other logits for some tokens of a row, each of which is named once."""

    row: int
    token_ids: Ids
    values: Floats


class Picker(Protocol):
    """What can be computed for many rows at once. A row's outcome depends on nothing else."""

    def pick(
        self, logits: Logits, terms: Sequence[Terms], changes: Sequence[Change] = (), /
    ) -> list[int]:
        """Return one token for each row, or :data:`NOT_FINITE` or :data:`NO_TOKEN`.

        A row has one change at most; ``logits`` stay as they are.
        """
        ...

    def scores(
        self, logits: Logits, wanted: Sequence[tuple[int, int, int]], /
    ) -> list[tuple[float, Top] | None]:
        """Return log-softmaxes: for each ``(row, token, k)`` at the token, and the k best.

        None stands for a row that is not finite.
        """
        ...


class NumpyPicker:
    """Implements :class:`Picker`, row by row."""

    def pick(
        self, logits: Logits, terms: Sequence[Terms], changes: Sequence[Change] = (), /
    ) -> list[int]:
        """Sort as little as decides."""
        best = logits.argmax(axis=1)  # the first of equals
        is_finite = np.isfinite(logits.max(axis=1)) & np.isfinite(logits.min(axis=1))
        by_row = {change.row: change for change in changes}
        tokens: list[int] = []
        for row, what in enumerate(terms):
            if not is_finite[row]:
                tokens.append(NOT_FINITE)
            elif row in by_row:
                tokens.append(_pick_changed(logits[row], what, by_row[row]))
            else:
                tokens.append(choose(logits[row], what) if what.temperature else int(best[row]))
        return tokens

    def scores(
        self, logits: Logits, wanted: Sequence[tuple[int, int, int]], /
    ) -> list[tuple[float, Top] | None]:
        """Take the log-softmax of whole rows."""
        return [_score(logits[row], token_id, num_top) for row, token_id, num_top in wanted]


def _pick_changed(row: Logits, terms: Terms, change: Change) -> int:
    logits = row.astype(np.float64)
    logits[change.token_ids] = change.values
    best = int(logits.argmax())
    if not np.isfinite(logits[best]):
        return NO_TOKEN
    return choose(logits, terms) if terms.temperature else best


def choose(row: npt.NDArray[np.floating], terms: Terms) -> int:
    """Draw from one row, whose highest must be finite, with a temperature above 0."""
    logits = row.astype(np.float64)
    weights = _weights(logits, logits.max(), terms)
    num_kept = int(np.count_nonzero(weights >= terms.min_p)) if terms.min_p else len(weights)
    if terms.top_k:
        num_kept = min(num_kept, terms.top_k)
    if num_kept == len(weights):
        return _choose_from_all(logits, float(weights.sum()), terms)
    head = _highest(logits, num_kept)
    cumulative = _weights(head, head[0], terms).cumsum()
    rank = _rank(cumulative, float(cumulative[-1]), terms)
    return _token_at(logits, head, num_kept - 1 if rank is None else rank)


def _choose_from_all(logits: Floats, total: float, terms: Terms) -> int:
    """Sort the head of the order first, since it nearly always decides."""
    for num_sorted in (_FIRST_LOOK, len(logits)):
        head = _highest(logits, num_sorted)
        weights = _weights(head, head[0], terms)
        rank = _rank(weights.cumsum(), total, terms)
        if rank is not None:
            return _token_at(logits, head, rank)
    last = np.count_nonzero(weights) - 1  # rounding put the number past the end
    return _token_at(logits, head, int(last))


def _weights(logits: Floats, highest: float, terms: Terms) -> Floats:
    """Return unnormalised probabilities, the highest of which is 1."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -infinity
        return np.exp((logits - highest) / terms.temperature)


def _highest(logits: Floats, count: int) -> Floats:
    """Return the ``count`` highest, highest first."""
    if count < len(logits):
        logits = np.partition(logits, -count)[-count:]
    return np.sort(logits)[::-1]


def _token_at(logits: Floats, head: Floats, rank: int) -> int:
    """Return the token at a place in the order, of which ``head`` is the start."""
    num_higher = np.count_nonzero(head > head[rank])
    equals = np.flatnonzero(logits == head[rank])
    return int(equals[rank - num_higher])


def _rank(cumulative: Floats, total: float, terms: Terms) -> int | None:
    """Return the place in the order that the number falls on, or None if it is past the end.

    ``cumulative`` is over the head of the order and ``total`` over all that is kept before top_p.
    """
    mass = total
    if terms.top_p < 1:
        last = int(np.searchsorted(cumulative, terms.top_p * total, side="left"))
        if last == len(cumulative):
            return None
        mass = float(cumulative[last])
    rank = int(np.searchsorted(cumulative, terms.number * mass, side="right"))
    return rank if rank < len(cumulative) else None


def _score(row: Logits, token_id: int, num_top: int) -> tuple[float, Top] | None:
    if not np.isfinite(row).all():
        return None
    values = row.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    best = _best(row, num_top)
    return float(values[token_id]), tuple((int(i), float(values[i])) for i in best)


def _best(values: Logits, count: int) -> npt.NDArray[np.intp]:
    """Return the indices of the ``count`` highest values, highest first, lowest index at a tie."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    lowest = np.partition(values, -count)[-count]
    candidates = np.flatnonzero(values >= lowest)
    order = np.argsort(-values[candidates], kind="stable")[:count]
    return candidates[order]
