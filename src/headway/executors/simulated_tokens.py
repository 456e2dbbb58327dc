"""The tokens of an executor without a model: arbitrary, cheap, and the same every time."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import shake_128
from itertools import chain, count, islice, repeat
from typing import Final

from headway.core.plan import SampledToken

_DRAWN_AT_ONCE: Final = 64
_NUMBERS: Final = struct.Struct(f"<{_DRAWN_AT_ONCE}I")
_MOST_KEPT: Final = 16


class ArbitraryVocabulary:
    """Draws tokens below ``vocab_size``, each a function of seed, index and output position.

    The objects of all tokens are made once, since they take longer to make than to find.
    """

    def __init__(self, vocab_size: int) -> None:
        self._tokens = [SampledToken(token_id) for token_id in range(vocab_size)]
        self._without: dict[tuple[int, ...], list[SampledToken]] = {}

    def draws(
        self, *, seed: int, index: int, stop_token_ids: tuple[int, ...], length: int | None
    ) -> Iterator[SampledToken]:
        """Return what a sequence draws, from output position 0 on, without end.

        Args:
            seed: the request's.
            index: which of the request's sequences.
            stop_token_ids: not drawn before position ``length - 1``, unless there are no others.
            length: output tokens, the stop token included; None never stops.
        """
        tokens = self._tokens_without(stop_token_ids)
        endless: Iterator[SampledToken]
        if len(tokens) <= 2 and tokens[0] is tokens[-1]:
            endless = repeat(tokens[0])  # there is nothing to choose
        else:
            endless = chain.from_iterable(_batches(f"{seed}:{index}", tokens))
        if length is None or not stop_token_ids:
            return endless
        stop = SampledToken(stop_token_ids[0])
        return chain(islice(endless, max(length - 1, 0)), repeat(stop))

    def _tokens_without(self, stop_token_ids: tuple[int, ...]) -> Sequence[SampledToken]:
        """Return the token of each number; the next other one takes the place of a stop token."""
        if not stop_token_ids:
            return self._tokens
        found = self._without.pop(stop_token_ids, None)
        if found is None:
            found = self._replace(set(stop_token_ids))
        while len(self._without) >= _MOST_KEPT:
            del self._without[next(iter(self._without))]
        self._without[stop_token_ids] = found
        return found

    def _replace(self, stops: set[int]) -> list[SampledToken]:
        found = self._tokens.copy()
        size = len(found)
        for stop in stops.intersection(range(size)):
            others = ((stop + step) % size for step in range(1, size))
            heir = next((each for each in others if each not in stops), stop)
            found[stop] = self._tokens[heir]
        return found


def _batches(key: str, tokens: Sequence[SampledToken]) -> Iterator[list[SampledToken]]:
    """Yield the tokens of a sequence, as many at a time as one hash gives."""
    size = len(tokens)
    for position in count(step=_DRAWN_AT_ONCE):
        digest = shake_128(f"{key}:{position}".encode()).digest(_NUMBERS.size)
        yield [tokens[number % size] for number in _NUMBERS.unpack(digest)]
