"""The prefix cache against a naive model: what it finds is right, and it finds what it should."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.core.blocks import BlockPool
from headway.core.prefix import MAX_CANDIDATES, KeyChain, Match, PrefixCache
from headway.core.request import PromptHashes
from headway.errors import InvariantError


def chain(*tokens: int, salt: str = "", block_size: int = 4, outputs: list[int] | None = None):
    return KeyChain(salt, block_size, tokens, [] if outputs is None else outputs)


def keys(made: KeyChain, count: int) -> list[bytes | None]:
    return [made.key(index) for index in range(count)]


def cached(*sequences: KeyChain, num_blocks: int = 32) -> tuple[BlockPool, PrefixCache, list[list]]:
    """Return a cache that knows all full blocks of these, each held once."""
    pool = BlockPool(num_blocks, sequences[0].block_size)
    cache = PrefixCache(pool)
    tables = []
    for each in sequences:
        count = 0
        while each.key(count) is not None:
            count += 1
        table = pool.allocate(count)
        for index, block_id in enumerate(table):
            cache.register(each, index, [block_id])
        tables.append(table)
    return pool, cache, tables


class TestKeyChain:
    def test_a_block_has_a_key_when_all_its_tokens_are_known(self) -> None:
        outputs: list[int] = []
        made = chain(1, 2, 3, 4, 5, 6, outputs=outputs)
        assert made.key(0) is not None
        assert made.key(1) is None
        outputs += [7, 8]
        assert made.key(1) == chain(1, 2, 3, 4, 5, 6, 7, 8).key(1)
        assert made.key(2) is None

    def test_tokens_of_a_block_span_prompt_and_output(self) -> None:
        made = chain(1, 2, 3, 4, 5, 6, outputs=[7, 8, 9])
        assert [made.tokens(index) for index in range(4)] == [(1, 2, 3, 4), (5, 6, 7, 8), (9,), ()]

    def test_a_key_depends_on_everything_before_it(self) -> None:
        first, other = chain(1, 2, 3, 4, 5, 6, 7, 8), chain(1, 2, 3, 9, 5, 6, 7, 8)
        assert first.key(1) != other.key(1)

    def test_a_salt_changes_every_key_and_cannot_pose_as_a_parent(self) -> None:
        plain, salted = chain(*range(12)), chain(*range(12), salt="tenant")
        assert not set(keys(plain, 3)) & set(keys(salted, 3))
        first = plain.key(0)
        assert first is not None
        posing = chain(*range(4, 12), salt=first.decode("latin-1"))
        assert posing.key(0) != plain.key(1)
        assert chain(1, 2, 3, 4, salt="ab").root != chain(1, 2, 3, 4, salt="a").root

    def test_the_block_size_is_part_of_the_key(self) -> None:
        assert chain(0, 0, 0, 0, block_size=2).key(0) != chain(0, 0, 0, 0, block_size=4).key(0)

    def test_siblings_share_keys_of_the_prompt_only(self) -> None:
        first = chain(1, 2, 3, 4, 5, outputs=[6, 7, 8])
        assert first.key(1) is not None
        outputs: list[int] = []
        sibling = first.fork(outputs)
        assert sibling.key(0) == first.key(0)
        assert sibling.key(1) is None
        outputs += [6, 7, 9]
        assert sibling.key(1) == chain(1, 2, 3, 4, 5, 6, 7, 9).key(1)

    def test_every_32_bit_token_id_has_its_place(self) -> None:
        assert chain(2**32 - 1, 0, 0, 0).key(0) != chain(0, 0, 0, 2**32 - 1).key(0)

    @given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
    def test_keys_are_equal_if_and_only_if_beginnings_are(
        self, left: list[int], right: list[int]
    ) -> None:
        one, other = chain(*left, block_size=3), chain(*right, block_size=3)
        for index in range(4):
            end = 3 * index + 3
            equal = len(left) >= end and len(right) >= end and left[:end] == right[:end]
            assert (one.key(index) is not None and one.key(index) == other.key(index)) == equal

    @given(st.lists(st.integers(0, 9), max_size=20), st.data())
    def test_the_order_of_asking_changes_nothing(self, tokens: list[int], data) -> None:
        order = data.draw(st.permutations(range(6)))
        made = chain(*tokens, block_size=4)
        asked = {index: made.key(index) for index in order}
        assert [asked[index] for index in range(6)] == keys(chain(*tokens, block_size=4), 6)


class TestHashedPrompts:
    def hashed(self, length: int, *ids: int, stretch: int = 8, salt: str = "") -> KeyChain:
        return KeyChain(salt, 4, (0,) * length, [], PromptHashes(stretch, ids))

    def test_only_blocks_wholly_inside_named_stretches_have_keys(self) -> None:
        made = self.hashed(22, 10, 11)
        assert [key is not None for key in keys(made, 6)] == [True] * 4 + [False] * 2
        assert self.hashed(7, 10).key(1) is None  # the prompt ends inside the block

    def test_equal_ids_are_equal_beginnings_and_nothing_else_is(self) -> None:
        first, other = self.hashed(16, 10, 11), self.hashed(16, 10, 12)
        assert keys(first, 2) == keys(other, 2)
        assert not set(keys(first, 4)[2:]) & set(keys(other, 4)[2:])
        assert len(set(keys(first, 4))) == 4

    def test_a_block_across_two_stretches_is_named_by_the_later_one(self) -> None:
        first, other = (self.hashed(12, 10, last, stretch=6) for last in (11, 12))
        assert first.key(0) == other.key(0)
        assert first.key(1) != other.key(1)
        assert self.hashed(12, 10, stretch=6).key(1) is None

    def test_salt_and_stretch_size_tell_keys_apart(self) -> None:
        made = self.hashed(8, 10)
        assert made.key(0) != self.hashed(8, 10, salt="other").key(0)
        assert made.key(0) != self.hashed(8, 10, stretch=16).key(0)
        assert made.key(0) != chain(0, 0, 0, 0).key(0)

    def test_they_match_whole_blocks_only_and_no_output(self) -> None:
        outputs = [1] * 8
        made = KeyChain("", 4, (0,) * 8, outputs, PromptHashes(8, (10,)))
        assert keys(made, 4)[2:] == [None, None]
        _, cache, (table,) = cached(made)
        assert cache.match(made, 7) == Match((table[0],))
        assert cache.match(made, 8) == Match(tuple(table))


class TestMatch:
    def test_nothing_known(self) -> None:
        cache = PrefixCache(BlockPool(4, 4))
        assert cache.match(chain(1, 2, 3, 4, 5), 4) == Match()

    def test_whole_blocks_then_a_part_of_one(self) -> None:
        _, cache, (table,) = cached(chain(*range(12)))
        found = cache.match(chain(*range(10), 99, 98), 11)
        assert found == Match(tuple(table[:2]), table[2], 2)

    def test_never_more_than_asked_for(self) -> None:
        same = chain(*range(12))
        _, cache, (table,) = cached(same)
        assert cache.match(same, 12) == Match(tuple(table))
        assert cache.match(same, 11) == Match(tuple(table[:2]), table[2], 3)
        assert cache.match(same, 8) == Match(tuple(table[:2]))
        assert cache.match(same, 2) == Match((), table[0], 2)
        assert cache.match(same, 0) == Match()

    def test_the_incomplete_last_block_of_a_prompt_matches_too(self) -> None:
        _, cache, (table,) = cached(chain(*range(8)))
        assert cache.match(chain(*range(6)), 5) == Match((table[0],), table[1], 1)

    def test_the_longest_beginning_wins_then_the_most_recent(self) -> None:
        _, cache, tables = cached(
            chain(1, 2, 9, 9), chain(1, 2, 3, 9), chain(1, 2, 3, 8), chain(1, 7, 7, 7)
        )
        assert cache.match(chain(1, 2, 3, 4, 5), 4) == Match((), tables[2][0], 3)

    def test_a_whole_block_beyond_the_limit_is_found_among_many(self) -> None:
        first = chain(1, 2, 3, 4)
        others = [chain(1, 2, 3, 10 + number) for number in range(MAX_CANDIDATES)]
        _, cache, tables = cached(first, *others)
        assert cache.match(first, 3) == Match((), tables[0][0], 3)

    def test_other_salts_match_nothing_not_even_in_part(self) -> None:
        _, cache, _ = cached(chain(1, 2, 3, 4, salt="a"))
        assert cache.match(chain(1, 2, 3, 4, 5, salt="b"), 4) == Match()

    def test_content_known_in_another_block_stays_there(self) -> None:
        pool, cache, tables = cached(chain(1, 2, 3, 4), chain(1, 2, 3, 4))
        assert cache.match(chain(1, 2, 3, 4), 4).block_ids == tuple(tables[0])
        pool.release(tables[1])
        pool.release(tables[0])
        pool.allocate(31)
        assert pool.num_evictions == 0

    def test_eviction_forgets(self) -> None:
        same = chain(*range(8))
        pool, cache, (table,) = cached(same, num_blocks=2)
        pool.release(table)
        pool.allocate(1)
        assert cache.match(same, 8) == Match((table[0],))
        pool.allocate(1)
        assert cache.match(same, 8) == Match()
        assert len(cache) == 0

    def test_a_rewritten_block_that_was_not_forgotten_is_our_bug(self) -> None:
        _, cache, (table,) = cached(chain(1, 2, 3, 4))
        with pytest.raises(InvariantError, match="has content"):
            cache.register(chain(5, 6, 7, 8), 0, [table[0]])

    def test_a_block_nobody_holds_cannot_become_known(self) -> None:
        cache = PrefixCache(BlockPool(4, 4))
        with pytest.raises(InvariantError, match="no content to keep"):
            cache.register(chain(5, 6, 7, 8), 0, [1])
        assert cache.match(chain(5, 6, 7, 8), 4) == Match()


SALTS = ("", "a")


class CacheAgainstModel(RuleBasedStateMachine):
    """The cache against a dictionary from (salt, all tokens up to the block's end) to the block."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(num_blocks=8, block_size=2)
        self.cache = PrefixCache(self.pool)
        forget = self.pool.on_evictions
        assert forget is not None

        def on_evictions(block_ids: list[int]) -> None:
            forget(block_ids)
            self.known = {key: b for key, b in self.known.items() if b not in block_ids}

        self.pool.on_evictions = on_evictions
        self.known: dict[tuple[str, tuple[int, ...]], int] = {}
        self.tables: list[tuple[str, tuple[int, ...], KeyChain, list[int]]] = []

    @rule(salt=st.sampled_from(SALTS), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=8))
    def start(self, salt: str, tokens: list[int]) -> None:
        made = chain(*tokens, salt=salt, block_size=2)
        found = self.cache.match(made, len(tokens) - 1)
        self.check_match(salt, tuple(tokens), found)
        for block_id in found.block_ids:
            self.pool.hold(block_id)
        missing = self.pool.blocks_for(len(tokens)) - len(found.block_ids)
        if missing > self.pool.num_free:
            self.pool.release(found.block_ids)
            return
        table = [*found.block_ids, *self.pool.allocate(missing)]
        self.tables.append((salt, tuple(tokens), made, table))

    def check_match(self, salt: str, tokens: tuple[int, ...], found: Match) -> None:
        limit = len(tokens) - 1
        whole: list[int] = []
        while 2 * len(whole) + 2 <= limit:
            block_id = self.known.get((salt, tokens[: 2 * len(whole) + 2]))
            if block_id is None:
                break
            whole.append(block_id)
        assert found.block_ids == tuple(whole)
        start = 2 * len(whole)
        room = min(limit - start, 2)
        lengths = {}
        for (other_salt, content), block_id in self.known.items():
            if (
                other_salt == salt
                and len(content) == start + 2
                and content[:start] == tokens[:start]
            ):
                pairs = zip(content[start:], tokens[start : start + room], strict=False)
                equal = [left == right for left, right in pairs]
                lengths[block_id] = [*equal, False].index(False)
        best = max(lengths.values(), default=0)
        assert found.num_partial == best
        assert (found.partial_block is None) == (best == 0)
        assert best == 0 or lengths[found.partial_block] == best

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def finish_computing(self, data: st.DataObject) -> None:
        salt, tokens, made, table = data.draw(st.sampled_from(self.tables))
        for index in range(len(tokens) // 2):
            self.cache.register(made, index, [table[index]])
            self.known.setdefault((salt, tokens[: 2 * index + 2]), table[index])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.tables) - 1))
        self.pool.release(self.tables.pop(number)[3])

    @invariant()
    def the_same_blocks_are_known(self) -> None:
        assert sorted(self.cache.known_ids()) == sorted(self.known.values())


TestCacheAgainstModel = CacheAgainstModel.TestCase
TestCacheAgainstModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
