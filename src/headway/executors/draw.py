"""What one draw depends on beside the logits, and how bias and penalties change these.

Only the logits of some tokens change, which are few beside a vocabulary.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import numpy as np

from headway.core.sampling import SamplingParams
from headway.executors.picking import Change, Floats, Ids, Logits


class Draw:
    """What the draws of one sequence depend on, beside the logits.

    What its parameters mean for every draw is decided here, once; a step moves the position on.

    Attributes:
        params: the request's.
        index: which of the request's sequences.
        position: output tokens so far.
        prompt_token_ids: for the repetition penalty.
        output_counts: occurrences of each token in the output, counted if a penalty asks for them.
        is_greedy: the highest logit is taken.
    """

    __slots__ = (
        "_has_penalty",
        "_num_changed",
        "_num_stopless",
        "index",
        "is_greedy",
        "output_counts",
        "params",
        "position",
        "prompt_token_ids",
    )

    def __init__(
        self,
        params: SamplingParams,
        index: int,
        position: int,
        prompt_token_ids: Sequence[int],
        output_counts: Counter[int],
    ) -> None:
        self.params = params
        self.index = index
        self.position = position
        self.prompt_token_ids = prompt_token_ids
        self.output_counts = output_counts
        self.is_greedy = params.temperature == 0
        self._has_penalty = bool(
            params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
        )
        #: so many draws know no stop ids, and so many are not from the raw logits
        self._num_stopless = params.min_tokens if params.stop_token_ids else 0
        is_changed = self._has_penalty or params.logit_bias
        self._num_changed = sys.maxsize if is_changed else self._num_stopless

    def append(self, token_id: int) -> None:
        """Move on by a token that was drawn."""
        self.position += 1
        if self._has_penalty:
            self.output_counts[token_id] += 1

    @property
    def changes_logits(self) -> bool:
        """Whether it is not from the raw logits."""
        return self.position < self._num_changed

    @property
    def forbids_stop(self) -> bool:
        """Whether it is too early for stop ids."""
        return self.position < self._num_stopless


def change(row: int, logits: Logits, draw: Draw) -> Change:
    """Return the tokens of a row whose logits change, each once, and their new logits.

    Those that are barred get minus infinity; an extreme penalty may give infinity.
    """
    params = draw.params
    biased, biases = _bias_arrays.of(params.logit_bias)
    barred = np.array(params.stop_token_ids if draw.forbids_stop else (), dtype=np.intp)
    drawn = np.fromiter(draw.output_counts, dtype=np.intp, count=len(draw.output_counts))
    is_repeating = params.repetition_penalty != 1
    seen = _seen(_prompt_ids.of(draw.prompt_token_ids), drawn) if is_repeating else drawn
    ids = seen  # each once, and nearly always that is all
    if len(biased) or len(barred):
        ids = np.unique(np.concatenate((seen, biased, barred)))
    place = _Places(ids)
    values = logits[ids].astype(np.float64)
    if len(biased):
        np.add.at(values, np.searchsorted(ids, biased), biases)  # an id may have two
    if is_repeating:
        _repeat(values, place.of(seen), params)
    if len(drawn) and (params.frequency_penalty or params.presence_penalty):
        times = np.fromiter(draw.output_counts.values(), dtype=np.float64, count=len(drawn))
        values[place.of(drawn)] -= params.frequency_penalty * times + params.presence_penalty
    if len(barred):
        values[place.of(barred)] = -np.inf
    return Change(row, ids, values)


class _Places:
    """Where tokens stand among ids that hold them all."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def of(self, token_ids: Ids) -> Ids | slice:
        if token_ids is self._ids:
            return slice(None)
        order = np.argsort(self._ids)
        return order[np.searchsorted(self._ids, token_ids, sorter=order)]


def _seen(prompt: Ids, drawn: Ids) -> Ids:
    """Return the tokens of prompt, which are in order, and output, each once."""
    if not len(prompt):
        return drawn
    at = np.minimum(np.searchsorted(prompt, drawn), len(prompt) - 1)
    return np.concatenate((prompt, drawn[prompt[at] != drawn]))


def _repeat(values: Floats, seen: Ids | slice, params: SamplingParams) -> None:
    old, penalty = values[seen], params.repetition_penalty
    with np.errstate(over="ignore"):  # an infinite logit is told apart later
        values[seen] = np.where(old > 0, old / penalty, old * penalty)


Source = TypeVar("Source")
Made = TypeVar("Made")


class _Kept(Generic[Source, Made]):
    """What is made of an object, for as long as the same one is asked for.

    By identity, since hashing long tuples for each token is slow; the objects are kept along, so
    that no other gets the same id.
    """

    _MOST: Final = 256

    def __init__(self, make: Callable[[Source], Made]) -> None:
        self._make = make
        self._made: dict[int, tuple[Source, Made]] = {}

    def of(self, source: Source) -> Made:
        kept = self._made.get(id(source))
        if kept is None:
            if len(self._made) >= self._MOST:
                del self._made[next(iter(self._made))]  # the oldest
            kept = self._made[id(source)] = (source, self._make(source))
        return kept[1]


def _arrays(pairs: tuple[tuple[int, float], ...]) -> tuple[Ids, Floats]:
    ids = np.fromiter((token_id for token_id, _ in pairs), dtype=np.intp, count=len(pairs))
    return ids, np.fromiter((value for _, value in pairs), dtype=np.float64, count=len(pairs))


def _distinct(token_ids: Sequence[int]) -> Ids:
    return np.unique(np.array(token_ids, dtype=np.intp))


_bias_arrays: Final = _Kept(_arrays)
_prompt_ids: Final = _Kept(_distinct)
