"""Holding new work back for a bounded time, so that a batch can fill."""

from __future__ import annotations

import heapq

from headway.core.plan import SequenceId

_SLACK = 64
"""Entries of the heap that may be dead beyond as many as are alive."""


class Hold:
    """The gate before the new work of one class.

    Each held sequence has a time at which it is due. When one is due all are let go together.
    Guards: no held sequence is past its time after ``is_open``.
    """

    def __init__(self) -> None:
        self._release_at: dict[SequenceId, float] = {}
        self._heap: list[tuple[float, SequenceId]] = []

    def __len__(self) -> int:
        return len(self._release_at)

    def add(self, sequence_id: SequenceId, release_at: float) -> None:
        """Hold a sequence until that time at most."""
        if len(self._heap) > 2 * len(self) + _SLACK:
            self._heap = [entry for entry in self._heap if self._is_alive(entry)]
            heapq.heapify(self._heap)
        self._release_at[sequence_id] = release_at
        heapq.heappush(self._heap, (release_at, sequence_id))

    def discard(self, sequence_id: SequenceId) -> None:
        """Forget a sequence that started or ended, if it was held."""
        self._release_at.pop(sequence_id, None)

    def first_release(self) -> float | None:
        """Return when the first held sequence is due."""
        while self._heap and not self._is_alive(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def is_open(self, now: float, num_waiting: int) -> bool:
        """Whether any of ``num_waiting`` sequences may start.

        It is open as long as somebody waits who was let go before, or has run before.
        """
        first = self.first_release()
        if first is not None and first <= now:
            self.release()
        return len(self) < num_waiting

    def release(self) -> None:
        """Let everybody go."""
        self._release_at.clear()
        self._heap.clear()

    def _is_alive(self, entry: tuple[float, SequenceId]) -> bool:
        return self._release_at.get(entry[1]) == entry[0]
