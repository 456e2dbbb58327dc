"""The block pool: counted references, and every misuse noticed."""

from __future__ import annotations

import pytest

from headway.core.blocks import BlockPool
from headway.errors import InvariantError


def test_a_shared_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(num_blocks=4, block_size=16)
    (block_id,) = pool.allocate(1)
    pool.hold(block_id)
    assert pool.reference_count(block_id) == 2
    pool.release([block_id])
    assert pool.num_free == 3
    pool.release([block_id])
    assert (pool.num_free, pool.reference_count(block_id)) == (4, 0)


def test_blocks_are_distinct_and_come_back() -> None:
    pool = BlockPool(num_blocks=4, block_size=16)
    taken = pool.allocate(4)
    assert sorted(taken) == [0, 1, 2, 3]
    pool.release(taken[1:3])
    assert set(pool.free_ids()) == set(taken[1:3])
    assert set(pool.allocate(2)) == set(taken[1:3])


def test_misuse_is_an_invariant_error_and_changes_nothing() -> None:
    pool = BlockPool(num_blocks=2, block_size=16)
    with pytest.raises(InvariantError, match="3 blocks, 2 are free"):
        pool.allocate(3)
    with pytest.raises(InvariantError, match="can't be shared"):
        pool.hold(0)
    with pytest.raises(InvariantError, match="freed twice"):
        pool.release([0])
    assert (pool.num_free, pool.reference_count(0)) == (2, 0)


@pytest.mark.parametrize(("positions", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_a_part_of_a_block_takes_a_whole_one(positions: int, blocks: int) -> None:
    assert BlockPool(num_blocks=4, block_size=16).blocks_for(positions) == blocks


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (4, 0)])
def test_an_empty_pool_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="needs blocks"):
        BlockPool(num_blocks, block_size)
