"""The pool of KV blocks: who holds which, counted, allocated and freed in O(1) a block."""

from __future__ import annotations

from collections.abc import Iterable

from headway.errors import InvariantError


class BlockPool:
    """A fixed number of blocks of ``block_size`` positions, each with a reference count.

    Guards: a block is either on the free list with count 0, or held with a count above 0.
    """

    __slots__ = ("_free", "_reference_counts", "block_size", "num_blocks")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks: got {num_blocks} of {block_size} positions")
        self.num_blocks = num_blocks
        self.block_size = block_size
        #: a stack; its top is the block that was freed last, likely still warm in a cache
        self._free = list(range(num_blocks - 1, -1, -1))
        self._reference_counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def blocks_for(self, num_positions: int) -> int:
        """Return how many blocks hold that many positions."""
        return -(-num_positions // self.block_size)

    def reference_count(self, block_id: int) -> int:
        """Return how many holders the block has."""
        return self._reference_counts[block_id]

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks, each with one holder.

        Raises:
            InvariantError: fewer are free; callers check ``num_free`` first.
        """
        if count > len(self._free):
            raise InvariantError(f"asked for {count} blocks, {len(self._free)} are free")
        taken = [self._free.pop() for _ in range(count)]
        for block_id in taken:
            self._reference_counts[block_id] = 1
        return taken

    def hold(self, block_id: int) -> None:
        """Add a holder to a block that has one already."""
        if self._reference_counts[block_id] == 0:
            raise InvariantError(f"block {block_id} is free, so it can't be shared")
        self._reference_counts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop one holder of each block; the last one out frees it."""
        for block_id in block_ids:
            count = self._reference_counts[block_id] - 1
            if count < 0:
                raise InvariantError(f"block {block_id} was freed twice")
            self._reference_counts[block_id] = count
            if count == 0:
                self._free.append(block_id)

    def free_ids(self) -> tuple[int, ...]:
        """Return the ids on the free list, for :mod:`headway.core.invariants`."""
        return tuple(self._free)
