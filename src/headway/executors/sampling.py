"""How the next token is drawn from raw logits. Exact, and stateless from draw to draw.

The steps, in this order (as in vLLM):

1. ``logit_bias`` is added to the raw logits;
2. penalties: repetition, then frequency and presence;
3. ``min_tokens``: stop ids can't be drawn until enough tokens are out;
4. temperature 0 takes the highest logit here, the lowest id among equals;
5. logits are divided by ``temperature``, and softmax gives probabilities;
6. tokens are put in order, the highest logit first, the lowest id first among equals. ``min_p``,
   ``top_k`` and ``top_p`` each keep the head of this order; the mass that ``top_p`` divides is
   what the two before it kept. At least one token always stays;
7. one uniform number chooses by the inverse of the cumulative distribution over that order.

The number is a hash of the seed, the sequence's index and the output position, so a draw depends
on nothing else: not on the batch, not on earlier draws, not on preemption. Reported
log-probabilities are the log-softmax of the raw logits. Everything past the logits is float64.

Steps 4 to 7 are computed for many rows at once by a :class:`headway.executors.picking.Picker`.
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
from headway.executors.picking import (
    GREEDY,
    NO_TOKEN,
    Floats,
    Logits,
    NumpyPicker,
    Picker,
    Terms,
    choose,
)

_Pairs = tuple[tuple[int, float], ...]

_MAX_KEPT_BIASES: Final = 256

# by identity, since hashing many pairs for each token is slow; the pairs are kept along with their
# arrays, so that no other object gets the same id
_bias_cache: dict[int, tuple[_Pairs, npt.NDArray[np.intp], Floats]] = {}

_NUMPY: Final = NumpyPicker()

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


def sample(
    logits: Logits, draws: Sequence[Draw], picker: Picker = _NUMPY
) -> list[SampledToken | SamplingError]:
    """Draw one token for each row of ``logits``, ``(len(draws), vocabulary)``.

    A row that can't be sampled gives its error in place of a token.
    """
    # rows that change their logits are drawn from below, but are looked at for what is not finite
    changes = [_changes_logits(draw) for draw in draws]
    terms = [GREEDY if own else _terms(draw) for draw, own in zip(draws, changes, strict=True)]
    drawn: list[int | SamplingError] = list(picker.pick(logits, terms))
    for row, own in enumerate(changes):
        if drawn[row] == NO_TOKEN:
            drawn[row] = SamplingError(_NOT_FINITE)
        elif own:
            drawn[row] = _draw_changed(logits[row], draws[row])
    return _with_scores(logits, draws, drawn, picker)


def token_logprobs(
    logits: Logits, wanted: Sequence[tuple[int, int, int]], picker: Picker = _NUMPY
) -> list[TokenLogprobs]:
    """Return the log-softmax of raw logits.

    Args:
        logits: some rows.
        wanted: ``(row, token, k)``, to be told at the token and at the k best of the row.
        picker: computes it.

    Raises:
        SamplingError: a logit of one of these rows is not finite.
    """
    found: list[TokenLogprobs] = []
    for (_, token_id, _), scores in zip(wanted, picker.scores(logits, wanted), strict=True):
        if scores is None:
            raise SamplingError(_NOT_FINITE)
        found.append(TokenLogprobs(token_id, *scores))
    return found


def _with_scores(
    logits: Logits,
    draws: Sequence[Draw],
    drawn: Sequence[int | SamplingError],
    picker: Picker,
) -> list[SampledToken | SamplingError]:
    wanted = [
        (row, token, draw.params.logprobs)
        for row, (draw, token) in enumerate(zip(draws, drawn, strict=True))
        if draw.params.logprobs is not None and not isinstance(token, SamplingError)
    ]
    tokens = [t if isinstance(t, SamplingError) else SampledToken(t) for t in drawn]
    if wanted:
        scores = token_logprobs(logits, wanted, picker)
        for (row, token_id, _), score in zip(wanted, scores, strict=True):
            tokens[row] = SampledToken(token_id, score)
    return tokens


def uniform(seed: int, index: int, position: int) -> float:
    """Return the number in [0, 1) that belongs to one draw."""
    digest = blake2b(f"{seed}:{index}:{position}".encode(), digest_size=8).digest()
    return float(int.from_bytes(digest) >> 11) * 2.0**-53


def _terms(draw: Draw) -> Terms:
    params = draw.params
    if params.temperature == 0:
        return GREEDY
    number = uniform(params.seed, draw.index, draw.position)
    return Terms(params.temperature, params.top_k, params.top_p, params.min_p, number)


def _changes_logits(draw: Draw) -> bool:
    params = draw.params
    has_penalty = (
        params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
    )
    return bool(has_penalty or params.logit_bias or _forbids_stop(draw))


def _forbids_stop(draw: Draw) -> bool:
    return draw.position < draw.params.min_tokens and bool(draw.params.stop_token_ids)


def _draw_changed(row: Logits, draw: Draw) -> int | SamplingError:
    logits = row.astype(np.float64)
    _add_bias(logits, draw.params)
    _penalise(logits, draw)
    if _forbids_stop(draw):
        logits[list(draw.params.stop_token_ids)] = -np.inf
    highest = int(logits.argmax())
    if not np.isfinite(logits[highest]):
        return SamplingError("logit_bias and min_tokens leave no token that can be drawn")
    return highest if draw.params.temperature == 0 else choose(logits, _terms(draw))


def _add_bias(logits: Floats, params: SamplingParams) -> None:
    if params.logit_bias:
        ids, values = _bias_arrays(params.logit_bias)
        np.add.at(logits, ids, values)


def _bias_arrays(pairs: _Pairs) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return ids and values, made once for as long as the same object is drawn with."""
    kept = _bias_cache.get(id(pairs))
    if kept is None:
        ids = np.fromiter((token_id for token_id, _ in pairs), dtype=np.intp, count=len(pairs))
        values = np.fromiter((value for _, value in pairs), dtype=np.float64, count=len(pairs))
        if len(_bias_cache) >= _MAX_KEPT_BIASES:
            _bias_cache.clear()
        kept = _bias_cache[id(pairs)] = (pairs, ids, values)
    return kept[1:]


def _penalise(logits: Floats, draw: Draw) -> None:
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
