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

Steps 1 to 3 are in :mod:`headway.executors.draw`; the others are computed for many rows at once by
a :class:`headway.executors.picking.Picker`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from headway.core.plan import SampledToken, TokenLogprobs
from headway.executors.draw import Draw, change
from headway.executors.picking import GREEDY, NOT_FINITE, Logits, NumpyPicker, Picker, Terms

_NUMPY: Final = NumpyPicker()

_NOT_FINITE: Final = "the logits are not finite"
_NO_TOKEN: Final = "logit_bias, penalties and min_tokens leave no token that can be drawn"


class SamplingError(Exception):
    """One token can't be drawn; says why. Others are not affected."""


def sample(
    logits: Logits, draws: Sequence[Draw], picker: Picker = _NUMPY
) -> list[SampledToken | SamplingError]:
    """Draw one token for each row of ``logits``, ``(len(draws), vocabulary)``.

    A row that can't be sampled gives its error in place of a token.
    """
    terms = [GREEDY if draw.is_greedy else _terms(draw) for draw in draws]
    changes = [
        change(row, logits[row], draw) for row, draw in enumerate(draws) if draw.changes_logits
    ]
    drawn = picker.pick(logits, terms, changes)
    if any(draw.params.logprobs is not None for draw in draws):
        return _with_scores(logits, draws, drawn, picker)
    return [_token(token_id) for token_id in drawn]


def _token(token_id: int, scores: TokenLogprobs | None = None) -> SampledToken | SamplingError:
    if token_id >= 0:
        return SampledToken(token_id, scores)
    return SamplingError(_NOT_FINITE if token_id == NOT_FINITE else _NO_TOKEN)


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
    logits: Logits, draws: Sequence[Draw], drawn: Sequence[int], picker: Picker
) -> list[SampledToken | SamplingError]:
    wanted = [
        (row, token_id, draw.params.logprobs)
        for row, (draw, token_id) in enumerate(zip(draws, drawn, strict=True))
        if draw.params.logprobs is not None and token_id >= 0
    ]
    scores = token_logprobs(logits, wanted, picker)
    by_row = {row: score for (row, _, _), score in zip(wanted, scores, strict=True)}
    return [_token(token_id, by_row.get(row)) for row, token_id in enumerate(drawn)]


def uniform(seed: int, index: int, position: int) -> float:
    """Return the number in [0, 1) that belongs to one draw."""
    digest = blake2b(f"{seed}:{index}:{position}".encode(), digest_size=8).digest()
    return float(int.from_bytes(digest) >> 11) * 2.0**-53


def _terms(draw: Draw) -> Terms:
    params = draw.params
    number = uniform(params.seed, draw.index, draw.position)
    return Terms(params.temperature, params.top_k, params.top_p, params.min_p, number)
