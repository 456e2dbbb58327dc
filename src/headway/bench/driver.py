"""Sends a workload: each request of an open loop when it is due, closed loops beside it.

An open loop never waits for answers, so a slow server meets the whole queue that real clients
would make it. What the client itself sends late keeps its due time in the record, and latencies
count from there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from headway.bench.clock import Clock
from headway.bench.job import Job, Send, Sender
from headway.report import Outcome, Record
from headway.workload import Arrival, ClosedLoop, Workload


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a run brought.

    Attributes:
        records: of all requests that were due.
        duration_s: from the beginning until the last answer had ended.
        was_stopped: whether somebody stopped it before its end.
    """

    records: Sequence[Record]
    duration_s: float
    was_stopped: bool


class Driver:
    """Runs one workload once.

    Args:
        workload: what to send.
        sender: has it answered.
        clock: begins with the workload.
        name: stands before the names of all requests.
    """

    def __init__(self, workload: Workload, sender: Sender, clock: Clock, name: str = "") -> None:
        self._workload = workload
        self._sender = sender
        self._clock = clock
        self._name = name
        self._main: asyncio.Task[None] | None = None
        self._was_stopped = False
        self.records: list[Record] = []
        self.num_ended: Counter[Outcome] = Counter()

    @property
    def num_under_way(self) -> int:
        """Requests that were due and have not ended."""
        return len(self.records) - self.num_ended.total()

    async def run(self) -> Measurement:
        """Send everything and wait for all answers, or until :meth:`stop`."""
        self._main = asyncio.create_task(self._everything())
        try:
            await asyncio.wait([self._main])
        finally:
            self._main.cancel()
        if not self._main.cancelled():
            self._main.result()  # raises what went wrong
        return Measurement(self.records, self._clock.now(), self._was_stopped)

    def stop(self) -> None:
        """Send nothing more and drop what is under way, so that :meth:`run` returns."""
        self._was_stopped = True
        if self._main is not None:
            self._main.cancel()

    async def _everything(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._open_loop(group))
            for number, loop in enumerate(self._workload.loops):
                names = count()
                for _ in range(loop.concurrency):
                    group.create_task(self._client(loop, f"{number}.", names))

    async def _open_loop(self, group: asyncio.TaskGroup) -> None:
        for number, arrival in enumerate(self._workload.arrivals):
            job = self._job(f"{number}", arrival)
            send = self._sender.prepare(job)
            await self._clock.sleep_until(arrival.at_s)
            self.records.append(job.record)
            group.create_task(self._ended(job, send))
            await asyncio.sleep(0)  # it leaves before the next one is made ready

    async def _client(self, loop: ClosedLoop, prefix: str, names: Iterator[int]) -> None:
        """Send one request after the other; each is due when the client is ready for it."""
        await self._clock.sleep_until(loop.start_s)
        while self._clock.now() < self._workload.duration_s:
            arrival = next(loop.requests, None)
            if arrival is None:
                return
            job = self._job(f"{prefix}{next(names)}", arrival)
            send = self._sender.prepare(job)
            job.record.due_s = self._clock.now()
            self.records.append(job.record)
            await self._ended(job, send)
            await self._clock.sleep_until(self._clock.now() + loop.think_s)

    async def _ended(self, job: Job, send: Send) -> None:
        """Have a request answered, or leave its record unfinished if this is cancelled."""
        try:
            await send(self._clock.now)
        except asyncio.CancelledError:
            job.record.outcome, job.record.ended_s = Outcome.UNFINISHED, None
            raise
        finally:
            self.num_ended[job.record.outcome] += 1

    def _job(self, name: str, arrival: Arrival) -> Job:
        record = Record(
            due_s=arrival.at_s,
            class_name=arrival.class_name,
            tenant=arrival.tenant,
            input_tokens=arrival.prompt_tokens,
        )
        return Job(self._name + name, arrival, record)
