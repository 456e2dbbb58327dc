"""The swap space: where the blocks of preempted sequences are parked, outside the pool."""

from __future__ import annotations

from collections.abc import Iterable

from headway.errors import InvariantError


class SwapSpace:
    """A fixed number of blocks with ids of their own, 0 to ``num_blocks - 1``; 0 is no space."""

    __slots__ = ("_free", "_is_taken", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ValueError(f"a swap space can't have {num_blocks} blocks")
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._is_taken = bytearray(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that nobody has taken."""
        return len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """Take ``count`` blocks, or none at all and return None if fewer are free."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        for block_id in taken:
            self._is_taken[block_id] = True
        return taken

    def release(self, block_ids: Iterable[int]) -> None:
        """Give blocks back.

        Raises:
            InvariantError: one was not taken.
        """
        for block_id in block_ids:
            if not self._is_taken[block_id]:
                raise InvariantError(f"swap block {block_id} was freed twice")
            self._is_taken[block_id] = False
            self._free.append(block_id)

    def free_ids(self) -> tuple[int, ...]:
        """Return the ids that nobody has taken, for :mod:`headway.core.invariants`."""
        return tuple(self._free)
