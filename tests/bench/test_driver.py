"""The driver on a virtual clock: when requests leave, and what they are counted as."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import inf

import pytest

from headway.bench import Driver, Job, Measurement, Now, Send
from headway.report import Outcome
from headway.workload import Arrival, ClosedLoop, Workload


class VirtualClock:
    """Time goes on when everybody waits for it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep_until(self, moment_s: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((moment_s, future))
        await future

    async def run(self, work: asyncio.Task[Measurement]) -> Measurement:
        """Let time pass until the work is done."""
        while not work.done():
            for _ in range(10):  # everybody who can has a turn
                await asyncio.sleep(0)
            self._sleepers = [each for each in self._sleepers if not each[1].done()]
            if self._sleepers:
                moment_s, future = min(self._sleepers, key=lambda each: each[0])
                self._now = max(self._now, moment_s)
                future.set_result(None)
        return work.result()


class FixedSender:
    """Answers after a fixed time, and remembers what it was asked."""

    def __init__(self, clock: VirtualClock, takes_s: float) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.sent: list[tuple[str, float]] = []
        self.most_at_once = 0
        self._at_once = 0

    def prepare(self, job: Job) -> Send:
        async def send(now: Now) -> None:
            job.record.sent_s = now()
            self.sent.append((job.name, now()))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            try:
                await self.clock.sleep_until(now() + self.takes_s)
            finally:
                self._at_once -= 1
            job.record.ended_s = now()
            job.record.outcome = Outcome.COMPLETED

        return send


def at(*times: float) -> list[Arrival]:
    return [Arrival(at_s=each, prompt_tokens=1, output_tokens=1) for each in times]


def endless() -> Iterator[Arrival]:
    while True:
        yield Arrival(at_s=0.0, prompt_tokens=1, output_tokens=1)


async def driven(
    workload: Workload, takes_s: float = 5.0
) -> tuple[Measurement, FixedSender, Driver]:
    clock = VirtualClock()
    sender = FixedSender(clock, takes_s)
    driver = Driver(workload, sender, clock)
    return await clock.run(asyncio.create_task(driver.run())), sender, driver


async def test_an_open_loop_never_waits_for_answers() -> None:
    result, sender, driver = await driven(Workload(at(0.0, 1.0, 1.0, 3.0), (), inf, {}))
    assert [moment for _, moment in sender.sent] == [0.0, 1.0, 1.0, 3.0]
    assert sender.most_at_once == 4
    assert result.duration_s == 8.0
    assert not result.was_stopped
    assert driver.num_ended == {Outcome.COMPLETED: 4}
    assert driver.num_under_way == 0


async def test_what_is_sent_late_was_due_when_it_was_due() -> None:
    clock = VirtualClock()

    class Slow(FixedSender):
        def prepare(self, job: Job) -> Send:
            self.clock._now += 2.0  # the client is too busy to be in time
            return super().prepare(job)

    sender = Slow(clock, 1.0)
    driver = Driver(Workload(at(0.0, 1.0, 2.0), (), inf, {}), sender, clock)
    result = await clock.run(asyncio.create_task(driver.run()))
    assert [each.due_s for each in result.records] == [0.0, 1.0, 2.0]
    assert [each.late_s for each in result.records] == [2.0, 3.0, 4.0]
    # what the busy client sees late counts too, since it counts from when each was due
    assert [each.e2el_s for each in result.records] == [6.0, 5.0, 5.0]


async def test_a_closed_loop_has_so_many_at_once_and_thinks() -> None:
    loop = ClosedLoop(concurrency=2, think_s=1.0, start_s=10.0, requests=iter(at(*[0.0] * 6)))
    result, sender, _ = await driven(Workload((), (loop,), inf, {}))
    assert sender.most_at_once == 2
    assert [moment for _, moment in sender.sent] == [10.0, 10.0, 16.0, 16.0, 22.0, 22.0]
    assert [each.due_s for each in result.records] == [10.0, 10.0, 16.0, 16.0, 22.0, 22.0]
    assert len({name for name, _ in sender.sent}) == 6


async def test_a_closed_loop_ends_with_its_time() -> None:
    loop = ClosedLoop(concurrency=3, think_s=0.0, start_s=0.0, requests=endless())
    result, _, _ = await driven(Workload((), (loop,), 12.0, {}))
    assert len(result.records) == 9  # at 0, 5 and 10 s; the last ones are waited for
    assert result.duration_s == 15.0


async def test_open_and_closed_loops_run_beside_each_other() -> None:
    loop = ClosedLoop(concurrency=1, think_s=0.0, start_s=0.0, requests=iter(at(0.0, 0.0)))
    result, sender, _ = await driven(Workload(at(2.0), (loop,), inf, {}))
    assert sorted(moment for _, moment in sender.sent) == [0.0, 2.0, 5.0]
    assert len(result.records) == 3


async def test_stopping_leaves_what_there_is() -> None:
    clock = VirtualClock()
    sender = FixedSender(clock, 5.0)
    driver = Driver(Workload(at(0.0, 1.0, 7.0, 100.0), (), inf, {}), sender, clock)
    task = asyncio.create_task(driver.run())

    async def stop() -> None:
        await clock.sleep_until(8.0)
        driver.stop()

    stopper = asyncio.create_task(stop())
    result = await clock.run(task)
    await stopper
    assert result.was_stopped
    assert [each.outcome for each in result.records] == [
        Outcome.COMPLETED,
        Outcome.COMPLETED,
        Outcome.UNFINISHED,
    ]
    assert result.records[2].ended_s is None
    assert driver.num_ended == {Outcome.COMPLETED: 2, Outcome.UNFINISHED: 1}


async def test_a_request_that_was_stopped_before_it_ran_is_unfinished_too() -> None:
    clock = VirtualClock()
    driver = Driver(Workload(at(0.0), (), inf, {}), FixedSender(clock, 5.0), clock)
    task = asyncio.create_task(driver.run())
    while not driver.records:
        for _, future in clock._sleepers:
            if not future.done():
                future.set_result(None)
        await asyncio.sleep(0)
    driver.stop()
    result = await task
    assert [each.outcome for each in result.records] == [Outcome.UNFINISHED]


async def test_a_bug_of_a_sender_is_not_hidden() -> None:
    class Broken(FixedSender):
        def prepare(self, job: Job) -> Send:
            async def send(now: Now) -> None:
                raise ZeroDivisionError

            return send

    clock = VirtualClock()
    driver = Driver(Workload(at(0.0, 1.0), (), inf, {}), Broken(clock, 1.0), clock)
    with pytest.raises(ExceptionGroup) as caught:
        await clock.run(asyncio.create_task(driver.run()))
    assert caught.group_contains(ZeroDivisionError)
