"""The pool of KV blocks: who holds which, counted, allocated and freed in O(1) a block.

A block that nobody holds may still have content that the prefix cache knows. Such blocks are free,
but they are handed out last, the least recently used one first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import compress

from headway.errors import InvariantError


class BlockPool:
    """A fixed number of blocks of ``block_size`` positions, each with a reference count.

    Guards: a block is held with a count above 0, or it has count 0 and is either plain free or
    free with *kept* content, and then in the order in which it will be evicted.

    Attributes:
        on_evictions: told the ids of blocks whose kept content is about to be overwritten.
        num_evictions: how often that has happened.
    """

    __slots__ = (
        "_evictable",
        "_free",
        "_is_kept",
        "_reference_counts",
        "block_size",
        "num_blocks",
        "num_evictions",
        "on_evictions",
    )

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks: got {num_blocks} of {block_size} positions")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_evictions = 0
        self.on_evictions: Callable[[list[int]], None] | None = None
        #: a stack; its top is the block that was freed last, likely still warm in a cache
        self._free = list(range(num_blocks - 1, -1, -1))
        #: least recently used first; an OrderedDict, since taking a dict's first entry isn't O(1)
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._is_kept = bytearray(num_blocks)
        self._reference_counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, with or without kept content."""
        return len(self._free) + len(self._evictable)

    @property
    def num_plain(self) -> int:
        """Free blocks without kept content: these are handed out first, and in one order."""
        return len(self._free)

    def blocks_for(self, num_positions: int) -> int:
        """Return how many blocks hold that many positions."""
        return -(-num_positions // self.block_size)

    def reference_count(self, block_id: int) -> int:
        """Return how many holders the block has."""
        return self._reference_counts[block_id]

    def num_shared(self, block_ids: Iterable[int]) -> int:
        """Return how many of these blocks, all of which are held, have several holders."""
        counts = list(map(self._reference_counts.__getitem__, block_ids))
        return len(counts) - counts.count(1)

    def num_held(self, block_ids: Iterable[int]) -> int:
        """Return how many of these blocks somebody holds."""
        counts = list(map(self._reference_counts.__getitem__, block_ids))
        return len(counts) - counts.count(0)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks, each with one holder; content is evicted only for want of others.

        Raises:
            InvariantError: fewer are free; callers check ``num_free`` first.
        """
        free, counts = self._free, self._reference_counts
        if count > len(free):
            if count > self.num_free:
                raise InvariantError(f"asked for {count} blocks, {self.num_free} are free")
            self._evict(count - len(free))
        taken = [free.pop() for _ in range(count)]
        for block_id in taken:
            counts[block_id] = 1
        return taken

    def hold(self, block_id: int) -> None:
        """Add a holder to a block that has one already, or whose content is kept.

        Raises:
            InvariantError: the block is free and has no content that could be shared.
        """
        if self._reference_counts[block_id] == 0:
            if block_id not in self._evictable:
                raise InvariantError(f"block {block_id} is free, so it can't be shared")
            del self._evictable[block_id]
        self._reference_counts[block_id] += 1

    def release(self, block_ids: Sequence[int]) -> None:
        """Drop one holder of each block of a table, given in its order; the last one out frees it.

        It goes from the last block to the first: of the content that is kept, the end of a sequence
        is then evicted before its beginning, without which it could not be found.

        Raises:
            InvariantError: a block has no holder.
        """
        counts, is_kept = self._reference_counts, self._is_kept
        if self.num_shared(block_ids) == 0:  # as most are: faster than one by one
            for block_id in block_ids:
                counts[block_id] = 0
            backwards = block_ids[::-1]
            kept = list(compress(backwards, map(is_kept.__getitem__, backwards)))
            self._evictable.update(dict.fromkeys(kept))
            if len(kept) < len(backwards):
                self._free += [b for b in backwards if not is_kept[b]] if kept else backwards
            return
        for block_id in reversed(block_ids):
            count = counts[block_id] - 1
            if count < 0:
                raise InvariantError(f"block {block_id} was freed twice")
            counts[block_id] = count
            if count == 0:
                if is_kept[block_id]:
                    self._evictable[block_id] = None
                else:
                    self._free.append(block_id)

    def keep(self, block_id: int) -> None:
        """Note that a held block has content worth keeping once nobody holds it."""
        if self._reference_counts[block_id] == 0:
            raise InvariantError(f"block {block_id} is free, so it has no content to keep")
        self._is_kept[block_id] = True

    def free_ids(self) -> tuple[int, ...]:
        """Return the ids that nobody holds, for :mod:`headway.core.invariants`."""
        return (*self._free, *self._evictable)

    def _evict(self, count: int) -> None:
        """Turn the ``count`` least recently used blocks with kept content into plain free ones."""
        take, is_kept = self._evictable.popitem, self._is_kept
        evicted = [take(last=False)[0] for _ in range(count)]
        for block_id in evicted:
            is_kept[block_id] = False
        self._free += evicted
        self.num_evictions += count
        if self.on_evictions is not None:
            self.on_evictions(evicted)
