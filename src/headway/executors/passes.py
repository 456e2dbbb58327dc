"""Cuts a step into passes through the model that fit the caches.

What a layer computes for some thousand rows is written to memory and read again; for some hundred
it stays in the caches, which is worth more than reading the weights once. Rows don't depend on each
other but by the keys and values of earlier positions, so passes in order give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from headway.core.plan import Slice

_State = TypeVar("_State")


def passes(
    work: Sequence[tuple[Slice, _State]], max_rows: int
) -> Iterator[Sequence[tuple[Slice, _State]]]:
    """Yield parts of at most ``max_rows`` rows in all; slices are cut where they don't fit.

    A slice that samples does so at its end only.
    """
    if work and sum([part.count for part, _ in work]) <= max_rows:
        yield work
        return
    room = max_rows
    some: list[tuple[Slice, _State]] = []
    for (sequence_id, start, count, sample), state in work:
        end = start + count
        while start < end:
            if not room:
                yield some
                room, some = max_rows, []
            num = min(room, end - start)
            some.append((Slice(sequence_id, start, num, sample and start + num == end), state))
            start += num
            room -= num
    if some:
        yield some
