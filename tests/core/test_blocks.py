"""The block pool: counted references, the order of eviction, and every misuse noticed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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


def test_kept_content_is_evicted_last_and_the_longest_unused_first() -> None:
    evicted: list[int] = []
    pool = BlockPool(num_blocks=5, block_size=16)
    pool.on_evictions = evicted.extend
    old, young, plain = pool.allocate(3)
    pool.keep(old)
    pool.keep(young)
    for block_id in (old, young, plain):
        pool.release([block_id])
    assert pool.num_free == 5
    others = pool.allocate(3)
    assert plain in others
    assert (evicted, pool.num_evictions) == ([], 0)
    assert pool.allocate(1) == [old]
    assert (evicted, pool.num_evictions) == ([old], 1)
    assert pool.allocate(1) == [young]
    assert (evicted, pool.num_evictions) == ([old, young], 2)


def test_of_a_table_the_end_is_evicted_before_the_beginning() -> None:
    pool = BlockPool(num_blocks=3, block_size=16)
    table = pool.allocate(3)
    for block_id in table:
        pool.keep(block_id)
    pool.release(table)
    assert [pool.allocate(1)[0] for _ in table] == table[::-1]


def test_a_free_block_with_kept_content_is_revived_and_used_most_recently() -> None:
    pool = BlockPool(num_blocks=2, block_size=16)
    first, second = pool.allocate(2)
    pool.keep(first)
    pool.keep(second)
    pool.release([first])
    pool.release([second])
    pool.hold(first)
    assert (pool.num_free, pool.reference_count(first)) == (1, 1)
    pool.release([first])
    assert [pool.allocate(1), pool.allocate(1)] == [[second], [first]]


def test_an_evicted_block_is_plain_when_it_is_released_again() -> None:
    pool = BlockPool(num_blocks=1, block_size=16)
    pool.keep(pool.allocate(1)[0])
    pool.release([0])
    pool.release(pool.allocate(1))
    assert pool.num_evictions == 1
    pool.allocate(1)
    assert pool.num_evictions == 1
    with pytest.raises(InvariantError, match="can't be shared"):
        BlockPool(1, 16).hold(0)


def test_misuse_is_an_invariant_error_and_changes_nothing() -> None:
    pool = BlockPool(num_blocks=2, block_size=16)
    with pytest.raises(InvariantError, match="3 blocks, 2 are free"):
        pool.allocate(3)
    with pytest.raises(InvariantError, match="can't be shared"):
        pool.hold(0)
    with pytest.raises(InvariantError, match="freed twice"):
        pool.release([0])
    with pytest.raises(InvariantError, match="no content to keep"):
        pool.keep(0)
    assert (pool.num_free, pool.reference_count(0)) == (2, 0)


@pytest.mark.parametrize(("positions", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_a_part_of_a_block_takes_a_whole_one(positions: int, blocks: int) -> None:
    assert BlockPool(num_blocks=4, block_size=16).blocks_for(positions) == blocks


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (4, 0)])
def test_an_empty_pool_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="needs blocks"):
        BlockPool(num_blocks, block_size)


class PoolAgainstModel(RuleBasedStateMachine):
    """The pool does what a list of holders and a list in order of release say."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(num_blocks=6, block_size=4)
        self.evicted: list[int] = []
        self.pool.on_evictions = self.evicted.extend
        self.holders: Counter[int] = Counter()
        self.kept: set[int] = set()
        self.order: list[int] = []  # free with kept content, least recently used first

    @rule(count=st.integers(0, 6))
    def allocate(self, count: int) -> None:
        num_free = 6 - len(+self.holders)
        if count > num_free:
            with pytest.raises(InvariantError):
                self.pool.allocate(count)
            return
        num_plain = num_free - len(self.order)
        lost, self.order = (
            self.order[: max(count - num_plain, 0)],
            self.order[max(count - num_plain, 0) :],
        )
        self.evicted.clear()
        taken = self.pool.allocate(count)
        assert self.evicted == lost
        assert len(set(taken)) == count
        assert not set(taken) & {*self.order, *+self.holders}
        assert set(lost) <= set(taken)
        self.kept -= set(taken)
        self.holders.update(taken)

    @rule(block_id=st.integers(0, 5))
    def hold(self, block_id: int) -> None:
        if not self.holders[block_id] and block_id not in self.order:
            with pytest.raises(InvariantError):
                self.pool.hold(block_id)
            return
        self.pool.hold(block_id)
        self.holders[block_id] += 1
        if block_id in self.order:
            self.order.remove(block_id)

    @precondition(lambda self: +self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        table = data.draw(st.lists(st.sampled_from(sorted(+self.holders)), unique=True))
        self.pool.release(table)
        for block_id in reversed(table):
            self.holders[block_id] -= 1
            if not self.holders[block_id] and block_id in self.kept:
                self.order.append(block_id)

    @precondition(lambda self: +self.holders)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        block_id = data.draw(st.sampled_from(sorted(+self.holders)))
        self.pool.keep(block_id)
        self.kept.add(block_id)

    @invariant()
    def counts_agree(self) -> None:
        free = self.pool.free_ids()
        assert sorted(free) == [b for b in range(6) if not self.holders[b]]
        assert self.pool.num_free == len(free)
        assert list(free)[len(free) - len(self.order) :] == self.order
        assert [self.pool.reference_count(b) for b in range(6)] == [
            self.holders[b] for b in range(6)
        ]


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
