"""The waiting queue: ordered by the policy, with cancellation from anywhere in O(log n)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from headway.core.plan import SequenceId
from headway.core.sequence import Sequence

OrderKey = tuple[float, ...]


class WaitingQueue:
    """A heap with lazy deletion; the smallest order key is looked at first.

    Guards: ``_members`` is the truth. An entry of the heap whose sequence is not a member, or was
    pushed again later, is dead and skipped; dead entries never outnumber the living by more than
    ``_SLACK``.
    """

    _SLACK = 64

    def __init__(self, order: Callable[[Sequence], OrderKey]) -> None:
        self._order = order
        self._heap: list[tuple[OrderKey, int, Sequence]] = []
        self._members: dict[SequenceId, int] = {}
        self._num_pushed = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._members

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the members in no particular order."""
        return (entry[2] for entry in self._heap if self._is_alive(entry))

    def push(self, sequence: Sequence) -> None:
        """Add a sequence at the place that the policy gives it."""
        self._num_pushed += 1
        self._members[sequence.sequence_id] = self._num_pushed
        heapq.heappush(self._heap, (self._order(sequence), self._num_pushed, sequence))

    def peek(self) -> Sequence | None:
        """Return the first sequence, or None."""
        while self._heap and not self._is_alive(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        del self._members[sequence.sequence_id]
        if len(self._heap) > 2 * len(self._members) + self._SLACK:
            self._heap = [entry for entry in self._heap if self._is_alive(entry)]
            heapq.heapify(self._heap)

    def _is_alive(self, entry: tuple[OrderKey, int, Sequence]) -> bool:
        return self._members.get(entry[2].sequence_id) == entry[1]
