"""Any number of replicas behind a router, on one virtual clock; open and closed loops.

Each replica has a clock of its own, and whoever is furthest behind moves next, so that nobody sees
the future of another. A replica takes what comes while it computes when its step has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from headway.core.plan import RequestId
from headway.sim.naming import number_of, request_id_of
from headway.sim.records import RequestRecord, SimulationResult
from headway.sim.replica import Machine, Replica
from headway.sim.requests import request_of
from headway.sim.routers import Router
from headway.workload import Arrival, ClosedLoop, Workload


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What came of a simulation.

    Attributes:
        requests: of all replicas, in order of arrival; those only that came before the end.
        replicas: what each replica recorded.
        end_s: when the last of them ended.
    """

    requests: tuple[RequestRecord, ...]
    replicas: tuple[SimulationResult, ...]
    end_s: float


def simulate_fleet(
    machines: Sequence[Machine], router: Router, workload: Workload, *, until_s: float = inf
) -> FleetResult:
    """Serve a workload. The same arguments give the same result, if the router is new.

    A client that leaves cancels its request. One that stops reading changes nothing: there is no
    network in the way, and the engine goes on.

    Args:
        machines: what each replica is made of.
        router: chooses among them.
        workload: what comes.
        until_s: when to stop, if not when all requests have ended.

    Raises:
        InvariantError: nothing moves any more, or a step failed: our bug.
    """
    return _Fleet(machines, router, workload, until_s).run()


class _Coming(NamedTuple):
    """A request that comes, or a client that leaves; of one moment, the first to be known first."""

    at_s: float
    order: int
    arrival: Arrival | None = None
    loop: ClosedLoop | None = None  # that the arrival is of
    leaver: int = -1


class _Post:
    """A replica in the fleet: what was handed to it, and when it moves next."""

    def __init__(self, machine: Machine, arrivals: Sequence[Arrival]) -> None:
        self.replica = Replica(machine, arrivals.__getitem__)
        self.next_s = inf
        self._arrivals = arrivals
        self._max_model_len = machine.config.limits.max_model_len
        self._came: list[int] = []
        self._left: list[int] = []
        #: requests whose client leaves after so many tokens
        self._leavers: dict[RequestId, int] = {}

    def come(self, number: int, at_s: float) -> None:
        """Hand a request over; it is taken in when the step that runs has ended."""
        self._came.append(number)
        self._wake(at_s)

    def leave(self, number: int, at_s: float) -> None:
        """Tell that the client of a request has left."""
        self._left.append(number)
        self._wake(at_s)

    def move(self, before_s: float) -> None:
        """Take in what came, and run a turn."""
        self.replica.wait(self.next_s)
        for number in self._came:
            self._submit(number)
        for number in self._left:
            self.replica.cancel(request_id_of(number))
        self._came, self._left = [], []
        # one step at a time: who leaves after so many tokens is looked for after each
        self.next_s = self.replica.turn(self.replica.now if self._leavers else before_s)
        if self._leavers:
            self._let_leave()

    def _wake(self, at_s: float) -> None:
        self.next_s = min(self.next_s, max(at_s, self.replica.now))

    def _submit(self, number: int) -> None:
        arrival = self._arrivals[number]
        conduct = arrival.conduct
        if conduct is not None and conduct.leaves_after_tokens is not None:
            self._leavers[request_id_of(number)] = conduct.leaves_after_tokens
        self.replica.submit(request_of(number, arrival, self._max_model_len))

    def _let_leave(self) -> None:
        recorder = self.replica.recorder
        self.replica.settle()
        for request_id, most in tuple(self._leavers.items()):
            count = recorder.num_tokens_of(request_id)
            if count is None or count >= most:
                del self._leavers[request_id]
                self.replica.cancel(request_id)


class _Fleet:
    """One simulation."""

    def __init__(
        self, machines: Sequence[Machine], router: Router, workload: Workload, until_s: float
    ) -> None:
        self._router = router
        self._duration_s = workload.duration_s
        self._until_s = until_s
        self._arrivals: list[Arrival] = []  # those that have come
        self._posts = [_Post(machine, self._arrivals) for machine in machines]
        #: when each replica moves next, and which; an entry that isn't its ``next_s`` is void
        self._moves: list[tuple[float, int]] = []
        self._coming: list[_Coming] = []
        self._num_pushed = 0
        self._where: dict[int, int] = {}  # the replica of each request that is under way
        self._loops: dict[int, ClosedLoop] = {}  # that it is of
        self._is_closed = bool(workload.loops)
        #: (moment, replica) of requests that ended, of which the router doesn't know yet
        self._ended: list[tuple[float, int]] = []
        self._open = iter(workload.arrivals)
        self._push_open()
        for loop in workload.loops:
            for _ in range(loop.concurrency):
                self._push_next(loop, loop.start_s)

    def run(self) -> FleetResult:
        """Let come what comes, and move whoever is furthest behind, in the order of time."""
        while True:
            coming_s = self._coming[0].at_s if self._coming else inf
            move_s = self._first_move_s()
            if min(coming_s, move_s) >= self._until_s:
                break
            if coming_s <= move_s:
                self._take_in(heappop(self._coming))
            else:
                self._move(min(coming_s, self._until_s))
        if not self._coming and self._first_move_s() == inf:
            for post in self._posts:
                post.replica.require_the_end()
        return self._result()

    # ---------------------------------------------------------------- what comes

    def _take_in(self, coming: _Coming) -> None:
        """Let a request come, or a client leave."""
        if coming.arrival is not None:
            self._route(coming.at_s, coming.arrival, coming.loop)
            if coming.loop is None:
                self._push_open()
            return
        index = self._where.get(coming.leaver)
        if index is not None:
            self._posts[index].leave(coming.leaver, coming.at_s)
            self._schedule(index)

    def _route(self, at_s: float, arrival: Arrival, loop: ClosedLoop | None) -> None:
        """Choose a replica for a request by what has ended so far."""
        while self._ended and self._ended[0][0] <= at_s:
            self._router.ended(heappop(self._ended)[1])
        index = self._router.choose(arrival)
        number = len(self._arrivals)
        self._arrivals.append(arrival)
        self._where[number] = index
        if loop is not None:
            self._loops[number] = loop
        self._posts[index].come(number, at_s)
        self._schedule(index)
        conduct = arrival.conduct
        if conduct is not None and conduct.leaves_after_s is not None:
            self._push(at_s + conduct.leaves_after_s, leaver=number)

    def _push(
        self,
        at_s: float,
        arrival: Arrival | None = None,
        loop: ClosedLoop | None = None,
        leaver: int = -1,
    ) -> None:
        self._num_pushed += 1
        heappush(self._coming, _Coming(at_s, self._num_pushed, arrival, loop, leaver))

    def _push_open(self) -> None:
        arrival = next(self._open, None)
        if arrival is not None:
            self._push(arrival.at_s, arrival)

    def _push_next(self, loop: ClosedLoop, at_s: float) -> None:
        """Let a client of a closed loop send its next request, if there is one."""
        if at_s < self._duration_s:
            arrival = next(loop.requests, None)
            if arrival is not None:
                self._push(at_s, replace(arrival, at_s=at_s), loop)

    # ---------------------------------------------------------------- who moves

    def _first_move_s(self) -> float:
        """Return when the first replica moves; it is then at the top of the heap."""
        moves = self._moves
        while moves and self._posts[moves[0][1]].next_s != moves[0][0]:
            heappop(moves)
        return moves[0][0] if moves else inf

    def _schedule(self, index: int) -> None:
        next_s = self._posts[index].next_s
        if next_s < inf:
            heappush(self._moves, (next_s, index))

    def _move(self, before_s: float) -> None:
        """Move the first replica, and take note of who has ended."""
        _, index = heappop(self._moves)
        post = self._posts[index]
        if self._is_closed:  # an answer of another one may bring a request before that
            before_s = min(before_s, self._first_move_s())
        post.move(before_s)
        self._schedule(index)
        for request_id, ended_s in post.replica.recorder.take_ended():
            number = number_of(request_id)
            del self._where[number]
            heappush(self._ended, (ended_s, index))
            loop = self._loops.pop(number, None)
            if loop is not None:
                self._push_next(loop, ended_s + loop.think_s)

    def _result(self) -> FleetResult:
        results = tuple(post.replica.result() for post in self._posts)
        records = [record for result in results for record in result.requests]
        records.sort(key=lambda record: record.number)
        return FleetResult(tuple(records), results, max(result.end_s for result in results))
