"""How the next token is drawn from raw logits. Exact, and stateless from draw to draw.

The steps, in this order (as in vLLM):

1. ``logit_bias`` is added to the raw logits;
2. penalties: repetition, then frequency and presence;
3. ``min_tokens``: stop ids can't be drawn until enough tokens are out;
4. temperature 0 takes the highest logit here, the lowest id among equals;
5. logits are divided by ``temperature``, and softmax gives probabilities;
6. tokens are put in order, the most probable first, the lowest id first among equals. ``min_p``,
   ``top_k`` and ``top_p`` each keep the head of this order; the mass that ``top_p`` divides is
   what the two before it kept. At least one token always stays;
7. one uniform number chooses by the inverse of the cumulative distribution over that order.

The number is a hash of the seed, the sequence's index and the output position, so a draw depends
on nothing else: not on the batch, not on earlier draws, not on preemption. Reported
log-probabilities are the log-softmax of the raw logits. Everything past the logits is float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from headway.core.plan import SampledToken, TokenLogprobs
from headway.core.sampling import SamplingParams

Logits = npt.NDArray[np.float32]
_Floats = npt.NDArray[np.float64]

_FIRST_LOOK: Final = 256
"""How many of the most probable tokens are sorted before it is known that more are needed."""

_Pairs = tuple[tuple[int, float], ...]

_MAX_KEPT_BIASES: Final = 256

# by identity, since hashing many pairs for each token is slow; the pairs are kept along with their
# arrays, so that no other object gets the same id
_bias_cache: dict[int, tuple[_Pairs, npt.NDArray[np.intp], _Floats]] = {}

_NOT_FINITE: Final = "the logits are not finite"


class SamplingError(Exception):
    """One token can't be drawn; says why. Others are not affected."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What a draw depends on, beside the logits.

    Attributes:
        params: the request's.
        index: which of the request's sequences.
        position: output tokens so far.
        prompt_token_ids: for the repetition penalty.
        output_counts: occurrences of each token in the output, for all penalties.
    """

    params: SamplingParams
    index: int
    position: int
    prompt_token_ids: Sequence[int]
    output_counts: Mapping[int, int]


def sample(logits: Logits, draws: Sequence[Draw]) -> list[SampledToken | SamplingError]:
    """Draw one token for each row of ``logits``, ``(len(draws), vocabulary)``.

    A row that can't be sampled gives its error in place of a token.
    """
    greedy = logits.argmax(axis=1)  # the first of equals
    is_finite = np.isfinite(logits.max(axis=1)) & np.isfinite(logits.min(axis=1))
    return [
        _sample_row(row, draw, int(best)) if is_sound else SamplingError(_NOT_FINITE)
        for row, draw, best, is_sound in zip(logits, draws, greedy, is_finite, strict=True)
    ]


def _sample_row(logits: Logits, draw: Draw, best: int) -> SampledToken | SamplingError:
    try:
        token_id = best if _is_plain(draw) else _draw_token(logits, draw)
    except SamplingError as error:
        return error
    num_top = draw.params.logprobs
    scores = None if num_top is None else token_logprobs(logits, token_id, num_top)
    return SampledToken(token_id, scores)


def token_logprobs(logits: Logits, token_id: int, num_top: int) -> TokenLogprobs:
    """Return the log-softmax of one row of raw logits, at ``token_id`` and the ``num_top`` best.

    Raises:
        SamplingError: a logit is not finite.
    """
    if not np.isfinite(logits).all():
        raise SamplingError(_NOT_FINITE)
    values = logits.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    best = _best(values, num_top)
    top = tuple((int(i), float(values[i])) for i in best)
    return TokenLogprobs(token_id, float(values[token_id]), top)


def uniform(seed: int, index: int, position: int) -> float:
    """Return the number in [0, 1) that belongs to one draw."""
    digest = blake2b(f"{seed}:{index}:{position}".encode(), digest_size=8).digest()
    return float(int.from_bytes(digest) >> 11) * 2.0**-53


def _is_plain(draw: Draw) -> bool:
    """Whether the highest raw logit is the answer."""
    return draw.params.temperature == 0 and not _changes_logits(draw)


def _changes_logits(draw: Draw) -> bool:
    params = draw.params
    has_penalty = (
        params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
    )
    return bool(has_penalty or params.logit_bias or _forbids_stop(draw))


def _forbids_stop(draw: Draw) -> bool:
    return draw.position < draw.params.min_tokens and bool(draw.params.stop_token_ids)


def _draw_token(row: Logits, draw: Draw) -> int:
    logits = row.astype(np.float64)
    _add_bias(logits, draw.params)
    _penalise(logits, draw)
    if _forbids_stop(draw):
        logits[list(draw.params.stop_token_ids)] = -np.inf
    highest = int(logits.argmax())
    if not np.isfinite(logits[highest]):
        raise SamplingError("logit_bias and min_tokens leave no token that can be drawn")
    if draw.params.temperature == 0:
        return highest
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -infinity
        weights = np.exp((logits - logits[highest]) / draw.params.temperature)
    return _choose(weights, draw.params, uniform(draw.params.seed, draw.index, draw.position))


def _add_bias(logits: _Floats, params: SamplingParams) -> None:
    if params.logit_bias:
        ids, values = _bias_arrays(params.logit_bias)
        np.add.at(logits, ids, values)


def _bias_arrays(pairs: _Pairs) -> tuple[npt.NDArray[np.intp], _Floats]:
    """Return ids and values, made once for as long as the same object is drawn with."""
    kept = _bias_cache.get(id(pairs))
    if kept is None:
        ids = np.fromiter((token_id for token_id, _ in pairs), dtype=np.intp, count=len(pairs))
        values = np.fromiter((value for _, value in pairs), dtype=np.float64, count=len(pairs))
        if len(_bias_cache) >= _MAX_KEPT_BIASES:
            _bias_cache.clear()
        kept = _bias_cache[id(pairs)] = (pairs, ids, values)
    return kept[1:]


def _penalise(logits: _Floats, draw: Draw) -> None:
    params, counts = draw.params, draw.output_counts
    if params.repetition_penalty != 1:
        seen = np.array(sorted({*draw.prompt_token_ids, *counts}), dtype=np.intp)
        values, penalty = logits[seen], params.repetition_penalty
        with np.errstate(over="ignore"):  # an infinite logit is told apart later
            logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    if counts and (params.frequency_penalty or params.presence_penalty):
        drawn = np.fromiter(counts.keys(), dtype=np.intp)
        times = np.fromiter(counts.values(), dtype=np.float64)
        logits[drawn] -= params.frequency_penalty * times + params.presence_penalty


def _choose(weights: _Floats, params: SamplingParams, number: float) -> int:
    """Draw by unnormalised probabilities, the highest of which is 1."""
    num_kept = int(np.count_nonzero(weights >= params.min_p)) if params.min_p else len(weights)
    if params.top_k:
        num_kept = min(num_kept, params.top_k)
    if num_kept == len(weights):
        return _choose_from_all(weights, params.top_p, number)
    head = _highest(weights, num_kept)
    cumulative = head.cumsum()
    rank = _rank(cumulative, float(cumulative[-1]), params.top_p, number)
    return _token_at(weights, head, num_kept - 1 if rank is None else rank)


def _choose_from_all(weights: _Floats, top_p: float, number: float) -> int:
    """Sort the head of the order first, since it nearly always decides."""
    total = float(weights.sum())
    for num_sorted in (_FIRST_LOOK, len(weights)):
        head = _highest(weights, num_sorted)
        rank = _rank(head.cumsum(), total, top_p, number)
        if rank is not None:
            return _token_at(weights, head, rank)
    last = np.count_nonzero(head) - 1  # rounding put the number past the end
    return _token_at(weights, head, int(last))


def _highest(weights: _Floats, count: int) -> _Floats:
    """Return the ``count`` highest weights, highest first."""
    if count < len(weights):
        weights = np.partition(weights, -count)[-count:]
    return np.sort(weights)[::-1]


def _token_at(weights: _Floats, head: _Floats, rank: int) -> int:
    """Return the token at a place in the order, of which ``head`` is the start."""
    num_higher = np.count_nonzero(head > head[rank])
    equals = np.flatnonzero(weights == head[rank])
    return int(equals[rank - num_higher])


def _rank(cumulative: _Floats, total: float, top_p: float, number: float) -> int | None:
    """Return the place in the order that a number falls on, or None if it is past the end.

    ``cumulative`` is over the head of the order and ``total`` over all that is kept before top_p.
    """
    mass = total
    if top_p < 1:
        last = int(np.searchsorted(cumulative, top_p * total, side="left"))
        if last == len(cumulative):
            return None
        mass = float(cumulative[last])
    rank = int(np.searchsorted(cumulative, number * mass, side="right"))
    return rank if rank < len(cumulative) else None


def _best(values: _Floats, count: int) -> npt.NDArray[np.intp]:
    """Return the indices of the ``count`` highest values, highest first, lowest index at a tie."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    lowest = np.partition(values, -count)[-count]
    candidates = np.flatnonzero(values >= lowest)
    order = np.argsort(-values[candidates], kind="stable")[:count]
    return candidates[order]
