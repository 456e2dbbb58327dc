"""Waiting queues: one a class, ordered by a key, or by the service of tenants."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

from headway.core.accounts import Flow
from headway.core.plan import SequenceId
from headway.core.sequence import Sequence


class Queue(Protocol):
    """Waiting sequences of a class."""

    def __len__(self) -> int: ...

    def __contains__(self, sequence: Sequence) -> bool: ...

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the members in no particular order."""
        ...

    def push(self, sequence: Sequence) -> None:
        """Add a sequence at its place."""
        ...

    def put_back(self, sequence: Sequence) -> None:
        """Add a sequence that was taken out for a moment, as if it never was."""
        ...

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        ...

    def take(self, sequence: Sequence) -> None:
        """Take a sequence out because it starts."""
        ...

    def peek(self) -> Sequence | None:
        """Return the first sequence, or None."""
        ...


_Entry = tuple[float, SequenceId, int, Sequence]
"""Key, sequence, the number of the push, so that no two are equal, and the sequence itself."""


class KeyQueue:
    """Smallest ``order_key`` first; equal ones by arrival.

    Those that go first stand in a sorted list, since steps look at them in order, and all others in
    a heap.

    Guards: ``_members`` is the truth, and nobody in the heap goes before anybody in the list. An
    entry of the heap that isn't the member's is dead and skipped; dead entries never outnumber the
    living by more than ``_SLACK``.
    """

    _SLACK = 64
    _LONGEST_FRONT = 64

    def __init__(self) -> None:
        self._front: list[_Entry] = []
        self._heap: list[_Entry] = []
        self._members: dict[SequenceId, _Entry] = {}
        self._num_pushed = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._members

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the members in no particular order."""
        for entry in self._front:
            yield entry[3]
        for entry in self._heap:
            if self._is_alive(entry):
                yield entry[3]

    def push(self, sequence: Sequence) -> None:
        """Add a sequence at its place."""
        self._num_pushed += 1
        sequence_id, front = sequence.sequence_id, self._front
        entry = (sequence.order_key, sequence_id, self._num_pushed, sequence)
        self._members[sequence_id] = entry
        if front and entry < front[-1]:
            insort(front, entry)
            if len(front) <= self._LONGEST_FRONT:
                return
            entry = front.pop()
        heapq.heappush(self._heap, entry)

    def put_back(self, sequence: Sequence) -> None:
        """Add a sequence again; its key gives it its old place."""
        self.push(sequence)

    def peek(self) -> Sequence | None:
        """Return the first sequence, or None."""
        if not self._front:
            self._fill(1)
        return self._front[0][3] if self._front else None

    def first(self, count: int) -> list[Sequence]:
        """Return the first ``count`` sequences in order, or all if there are fewer."""
        if len(self._front) < count:
            self._fill(count)
        return [entry[3] for entry in self._front[:count]]

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        entry, front = self._members.pop(sequence.sequence_id), self._front
        if front and entry <= front[-1]:
            del front[bisect_left(front, entry)]
        elif len(self._heap) > 2 * len(self._members) + self._SLACK:
            self._heap = [entry for entry in self._heap if self._is_alive(entry)]
            heapq.heapify(self._heap)

    def take(self, sequence: Sequence) -> None:
        """Take a sequence out because it starts."""
        self.remove(sequence)

    def _fill(self, count: int) -> None:
        """Have so many in the sorted list, if there are so many."""
        front, heap = self._front, self._heap
        while heap and len(front) < count:
            entry = heapq.heappop(heap)
            if self._is_alive(entry):
                front.append(entry)

    def _is_alive(self, entry: _Entry) -> bool:
        return self._members.get(entry[1]) is entry


class SlackQueue:
    """Least slack first; work that missed its target behind, but for every fourth start.

    Late work that has aged would otherwise take all starts, under lasting overload, and make all
    others late as well.
    """

    _FRESH_STARTS = 3
    """So many that can meet their target start between two late ones."""

    def __init__(self) -> None:
        self._fresh = KeyQueue()
        self._late = KeyQueue()
        self._num_fresh_starts = 0  # since a late one started

    def __len__(self) -> int:
        return len(self._fresh) + len(self._late)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._queue_of(sequence)

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the members in no particular order."""
        yield from self._fresh
        yield from self._late

    def push(self, sequence: Sequence) -> None:
        """Add a sequence at its place."""
        self._queue_of(sequence).push(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """Add a sequence again; its key gives it its old place."""
        self.push(sequence)

    def peek(self) -> Sequence | None:
        """Return the first sequence, or None."""
        fresh, late = self._fresh.peek(), self._late.peek()
        if fresh is None or late is None:
            return fresh or late
        has_aged = late.order_key < fresh.order_key
        return late if has_aged and self._num_fresh_starts >= self._FRESH_STARTS else fresh

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        self._queue_of(sequence).remove(sequence)

    def take(self, sequence: Sequence) -> None:
        """Take a sequence out because it starts."""
        self._num_fresh_starts = 0 if sequence.is_late else self._num_fresh_starts + 1
        self.remove(sequence)

    def _queue_of(self, sequence: Sequence) -> KeyQueue:
        return self._late if sequence.is_late else self._fresh


class FairQueue:
    """The tenant with the least service first; its own work by ``order_key``.

    Of tenants with equal service the one goes first whose work started longest ago. So it doesn't
    matter how often it is asked who goes first.

    Guards: a tenant with waiting work has exactly one entry in the heap, and one without at most
    one. Counters only grow, so an entry that is out of date is put where it belongs when it comes
    to the top.
    """

    def __init__(self) -> None:
        self._queues: dict[Flow, KeyQueue] = {}
        self._heap: list[tuple[float, int, int, Flow]] = []
        self._entered: set[Flow] = set()  # that have an entry
        self._num_members = 0
        self._num_starts = 0
        self._last: Flow | None = None  # the tenant whose work left last

    def __len__(self) -> int:
        return self._num_members

    def __contains__(self, sequence: Sequence) -> bool:
        queue = self._queues.get(sequence.flow)
        return queue is not None and sequence in queue

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the members in no particular order."""
        return (sequence for queue in self._queues.values() for sequence in queue)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence; a tenant that had no work waiting is lifted to the least of the others.

        A tenant whose work is preempted has work running, so it is not lifted.
        """
        flow = sequence.flow
        if flow not in self._queues and sequence.num_preemptions == 0:
            floor = self._first_flow() or self._last
            flow.service.lift_to(floor.service.virtual if floor else 0.0)
        self.put_back(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """Add a sequence and lift nobody."""
        flow = sequence.flow
        queue = self._queues.get(flow)
        if queue is None:
            queue = self._queues[flow] = KeyQueue()
            self._enter(flow)
        queue.push(sequence)
        self._num_members += 1

    def peek(self) -> Sequence | None:
        """Return the first sequence, or None."""
        flow = self._first_flow()
        return self._queues[flow].peek() if flow else None

    def heads(self) -> Iterator[Sequence]:
        """Yield the first sequence of each tenant, in no particular order."""
        for queue in self._queues.values():
            head = queue.peek()
            assert head is not None  # a tenant without work has no queue
            yield head

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        flow = sequence.flow
        queue = self._queues[flow]
        queue.remove(sequence)
        self._num_members -= 1
        self._last = flow
        if not queue:
            del self._queues[flow]

    def take(self, sequence: Sequence) -> None:
        """Take a sequence out because it starts."""
        self._num_starts += 1
        sequence.flow.last_start = self._num_starts
        self.remove(sequence)

    def _enter(self, flow: Flow) -> None:
        if flow in self._entered:
            return
        self._entered.add(flow)
        heapq.heappush(self._heap, _place(flow))

    def _first_flow(self) -> Flow | None:
        while self._heap:
            entry = self._heap[0]
            flow = entry[-1]
            if flow not in self._queues:
                heapq.heappop(self._heap)
                self._entered.remove(flow)
            elif (place := _place(flow)) > entry:
                heapq.heapreplace(self._heap, place)
            else:
                return flow
        return None


def _place(flow: Flow) -> tuple[float, int, int, Flow]:
    return flow.service.virtual, flow.last_start, flow.number, flow
