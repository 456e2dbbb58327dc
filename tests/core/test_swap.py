"""The swap space: all or nothing, and no block twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.swap import SwapSpace
from headway.errors import InvariantError


def test_what_does_not_fit_takes_nothing() -> None:
    space = SwapSpace(3)
    taken = space.allocate(2)
    assert taken is not None
    assert space.allocate(2) is None
    assert space.num_free == 1
    space.release(taken)
    assert space.allocate(3) is not None
    assert space.num_free == 0


def test_a_block_that_was_not_taken_cannot_be_freed() -> None:
    space = SwapSpace(2)
    with pytest.raises(InvariantError, match="swap block 0 was freed twice"):
        space.release([0])


def test_there_may_be_none() -> None:
    assert SwapSpace(0).allocate(1) is None
    assert SwapSpace(0).allocate(0) == []
    with pytest.raises(ValueError, match="-1 blocks"):
        SwapSpace(-1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_blocks_are_neither_lost_nor_doubled(moves: list[tuple[bool, int]]) -> None:
    space = SwapSpace(8)
    held: list[list[int]] = []
    for is_release, number in moves:
        if is_release and held:
            space.release(held.pop(number % len(held)))
        elif not is_release:
            num_free = space.num_free
            taken = space.allocate(number)
            assert (taken is None) == (number > num_free)
            held.append(taken or [])
        everything = [b for blocks in held for b in blocks] + list(space.free_ids())
        assert sorted(everything) == list(range(8))
        assert space.num_free == len(space.free_ids())
