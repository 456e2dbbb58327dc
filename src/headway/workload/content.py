"""What prompts say: text or token ids made up from a seed, the same wherever hashes are the same.

A trace with hashes knows which prompts begin alike, but not what they say. Each of its stretches
becomes made-up words that depend on its hash alone, so a server's prefix cache finds what the
service's own would have found.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random

from headway.workload.arrival import Arrival

_COMMON = """
the of and to in is that for it as was with be by on not he his but at are this have from or
had an they which one you were all her she there would their we him been has when who will no
more if out so up said what its about than into them can only other time new some could these
two may first then do any like my now over such our man me even most made after also did many
off before must well back through years much where your way down should because long each just
state those people too good very make world still see own work here life get both between never
being under us know day same another while last might great year since against go came right
used take three place use water small house thought went say part once high general upon school
every given found left set power city large second open side hand point night best white though
young always until far look end away asked head days words called number order light almost form
name business free war government line next half town love country field group food early river
"""
#: common words, each one token after a space in the vocabularies of today's models
WORDS = tuple(_COMMON.split())
#: ids that are ordinary tokens in vocabularies of 32,000 and more
ID_RANGE = (1_000, 30_000)


def ids_within(vocab_size: int) -> tuple[int, int]:
    """Return the range of ids for prompts to a model with so many tokens."""
    low, high = ID_RANGE
    return min(low, vocab_size // 2), min(high, vocab_size)


class Content:
    """Makes prompts. The same seed gives the same ones."""

    def __init__(self, seed: int, id_range: tuple[int, int] = ID_RANGE) -> None:
        self._seed = seed
        self._ids = range(*id_range)
        # traces come back to the same stretches again and again
        self._shared_words = lru_cache(maxsize=4096)(self._stretch_of_words)
        self._shared_ids = lru_cache(maxsize=4096)(self._stretch_of_ids)

    def text(self, name: str, arrival: Arrival) -> str:
        """Return what the request of this name says: about ``prompt_tokens`` tokens."""
        if arrival.prompt is not None and arrival.prompt.text:
            return arrival.prompt.text
        parts = (
            self._shared_words(part, length) if is_shared else self._stretch_of_words(part, length)
            for part, length, is_shared in _stretches(name, arrival)
        )
        return " ".join(parts)

    def token_ids(self, name: str, arrival: Arrival) -> list[int]:
        """Return the request of this name as exactly ``prompt_tokens`` token ids."""
        ids: list[int] = []
        for part, length, is_shared in _stretches(name, arrival):
            make = self._shared_ids if is_shared else self._stretch_of_ids
            ids += make(part, length)
        return ids

    def _stretch_of_words(self, name: str, length: int) -> str:
        return " ".join(Random(f"{self._seed}/{name}").choices(WORDS, k=length))

    def _stretch_of_ids(self, name: str, length: int) -> list[int]:
        return Random(f"{self._seed}/{name}").choices(self._ids, k=length)


def _stretches(name: str, arrival: Arrival) -> Iterator[tuple[str, int, bool]]:
    """Yield (what decides it, its length in tokens, whether others share it) of each stretch.

    The beginning of a stretch that was cut is the beginning of the whole one.
    """
    rest = arrival.prompt_tokens
    if arrival.hashes is not None:
        for hashed in arrival.hashes.ids:
            length = min(arrival.hashes.stretch_tokens, rest)
            if length:
                yield f"hash {hashed}", length, True
            rest -= length
    if rest:
        yield f"request {name}", rest, False
