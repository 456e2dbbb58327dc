"""What one draw depends on beside the logits, and how bias and penalties change these.

Only the logits of some tokens change, which are few beside a vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from headway.core.sampling import SamplingParams
from headway.executors.picking import Change, Floats, Ids, Logits


class Draw(NamedTuple):
    """What a draw depends on, beside the logits. Many are made in every step.

    Attributes:
        params: the request's.
        index: which of the request's sequences.
        position: output tokens so far.
        prompt_token_ids: for the repetition penalty.
        output_counts: occurrences of each token in the output, for all penalties.
    """

    params: SamplingParams
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    position: int
    prompt_token_ids: Sequence[int]
    output_counts: Mapping[int, int]

    @property
    def changes_logits(self) -> bool:
        """Whether it is not from the raw logits."""
        params = self.params
        return bool(
            params.logit_bias
            or params.repetition_penalty != 1
            or params.presence_penalty
            or params.frequency_penalty
            or self.forbids_stop
        )

    @property
    def forbids_stop(self) -> bool:
        """Whether it is too early for stop ids."""
        return self.position < self.params.min_tokens and bool(self.params.stop_token_ids)


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
