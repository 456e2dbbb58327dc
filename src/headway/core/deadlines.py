"""Deadlines of live requests, earliest first."""

from __future__ import annotations

import heapq

from headway.core.events import ExpireReason
from headway.core.lifecycle import State
from headway.core.sequence import LiveRequest


class Deadlines:
    """A heap of deadlines; those that no longer matter are dropped when they surface.

    Guards: dead entries, which keep ended requests in memory, never outnumber the live requests
    by more than ``_SLACK``.
    """

    _SLACK = 64

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ExpireReason, LiveRequest]] = []
        self._num_pushed = 0

    def watch(self, live: LiveRequest, num_live: int) -> None:
        """Remember the deadlines of a request that was just admitted, one of ``num_live``."""
        request = live.request
        if len(self._heap) > 3 * num_live + self._SLACK:
            self._heap = [entry for entry in self._heap if _matters(entry)]
            heapq.heapify(self._heap)
        if request.queue_timeout_s is not None:
            self._push(live, request.queue_timeout_s, ExpireReason.QUEUE_TIMEOUT)
        if request.request_timeout_s is not None:
            self._push(live, request.request_timeout_s, ExpireReason.REQUEST_TIMEOUT)

    def next(self) -> float | None:
        """Return the earliest deadline that still matters."""
        while self._heap and not _matters(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_passed(self, now: float) -> tuple[LiveRequest, ExpireReason] | None:
        """Return and forget the earliest deadline that has passed, if any has."""
        deadline = self.next()
        if deadline is None or deadline > now:
            return None
        _, _, reason, live = heapq.heappop(self._heap)
        return live, reason

    def _push(self, live: LiveRequest, timeout_s: float, reason: ExpireReason) -> None:
        self._num_pushed += 1
        entry = (live.submitted_at + timeout_s, self._num_pushed, reason, live)
        heapq.heappush(self._heap, entry)


def _matters(entry: tuple[float, int, ExpireReason, LiveRequest]) -> bool:
    _, _, reason, live = entry
    if reason is ExpireReason.QUEUE_TIMEOUT:
        return live.state is State.WAITING
    return live.is_live
