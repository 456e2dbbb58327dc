"""The async front: streams, refusals, cancellation, slow readers, failures, drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headway.core import events as ev
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId, StepPlan, StepResult
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.aio import MAX_FAILED_STEPS, AsyncEngine
from headway.engine.clock import RealClock
from headway.engine.loop import Engine
from headway.engine.stream import BURST, RequestStream
from headway.errors import EngineStoppedError, RequestError
from headway.testing.scripted import ScriptedExecutor, repeat


def request(name: str, max_tokens: int = 3, num_prompt: int = 4, **changes: Any) -> Request:
    return Request(
        request_id=RequestId(name),
        prompt_token_ids=tuple(range(num_prompt)),
        sampling=SamplingParams(max_tokens=max_tokens),
        **changes,
    )


@asynccontextmanager
async def running(
    executor: ScriptedExecutor, *, max_buffered_events: int = 1024, **limits: Any
) -> AsyncIterator[AsyncEngine]:
    values: dict[str, Any] = {
        "num_blocks": 64,
        "block_size": 4,
        "max_model_len": 128,
        "max_num_seqs": 2,
        "max_num_batched_tokens": 16,
        **limits,
    }
    scheduler = Scheduler(SchedulerConfig(limits=SchedulerLimits(**values)))
    engine = AsyncEngine(
        Engine(scheduler, executor, RealClock()), max_buffered_events=max_buffered_events
    )
    engine.start()
    try:
        yield engine
    finally:
        if executor.is_gated:
            executor.allow(10_000)
        await engine.stop()
        scheduler.check()
        assert scheduler.statistics().num_live == 0


async def collect(stream: RequestStream) -> list[ev.Event]:
    return [event async for batch in stream for event in batch]


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the other side until it has come so far; a time-out is a failure."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def tokens(events: list[ev.Event]) -> list[int]:
    return [e.token.token_id for e in events if isinstance(e, ev.TokenReady)]


async def test_events_arrive_in_order_and_end() -> None:
    async with running(ScriptedExecutor(repeat([5, 6, 7]))) as engine:
        stream = await engine.submit(request("a"))
        events = await collect(stream)
    assert tokens(events) == [5, 6, 7]
    assert isinstance(events[0], ev.Started)
    assert events[-1] == ev.Finished(RequestId("a"))


async def test_refusal_carries_code_and_numbers() -> None:
    async with running(ScriptedExecutor(repeat([5]))) as engine:
        with pytest.raises(RequestError, match="128") as caught:
            await engine.submit(request("a", num_prompt=200))
        assert (caught.value.code, caught.value.status) == ("context_length_exceeded", 400)
        assert tokens(await collect(await engine.submit(request("b", max_tokens=1)))) == [5]


async def test_full_queue_is_503_with_retry_after() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor, max_num_seqs=1, max_queue_requests=0) as engine:
        first = await engine.submit(request("a"))
        await until(executor.is_waiting.is_set)
        asking = asyncio.create_task(engine.submit(request("b")))
        await asyncio.sleep(0)
        executor.allow()
        with pytest.raises(RequestError) as caught:
            await asking
        assert caught.value.status == 503
        assert caught.value.retry_after_s == 1.0
        executor.allow(10)
        assert len(tokens(await collect(first))) == 3


async def test_cancel_frees_blocks_within_one_step() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        stream = await engine.submit(request("a", max_tokens=100))
        await until(executor.is_waiting.is_set)
        stream.cancel("client_disconnected")
        stream.cancel("again")
        assert not executor.plans
        executor.allow()
        events = await collect(stream)
        assert events[-1] == ev.Cancelled(RequestId("a"), "client_disconnected")
        await until(lambda: engine.statistics().num_free_blocks == 64)
        assert len(executor.plans) == 1, "the step that ran when the client left, and no other"


async def test_leaving_the_stream_cancels_the_request() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        async with await engine.submit(request("a", max_tokens=100)):
            await until(executor.is_waiting.is_set)
        executor.allow()
        await until(lambda: engine.statistics().num_cancelled == 1)


async def test_abandoned_submission_is_cancelled() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor, max_num_seqs=1) as engine:
        blocker = await engine.submit(request("a"))
        await until(executor.is_waiting.is_set)
        asking = asyncio.create_task(engine.submit(request("b")))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        executor.allow(10)
        await collect(blocker)
        await until(lambda: engine.statistics().num_cancelled == 1)


async def test_reader_that_falls_behind_loses_its_request_and_nobody_elses() -> None:
    """B10: what waits for a reader is bounded."""
    roomy = {"max_model_len": 100_000, "num_blocks": 25_000}
    executor = ScriptedExecutor(repeat([5]))
    async with running(executor, max_buffered_events=8, **roomy) as engine:
        slow = await engine.submit(request("slow", max_tokens=90_000))
        await until(lambda: engine.statistics().num_cancelled == 1)
        good = await engine.submit(request("good", max_tokens=5))
        assert len(tokens(await collect(good))) == 5
        events = await collect(slow)
    assert len(events) <= 8 * BURST + 1
    assert events[-1] == ev.Cancelled(RequestId("slow"), "client_too_slow")


async def test_stop_string_ends_the_sequence() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        stream = await engine.submit(request("a", max_tokens=50))
        executor.allow()
        async for batch in stream:
            if tokens(list(batch)):
                break
        stream.finish(0)
        executor.allow(5)
        rest = await collect(stream)
    assert rest[-2:] == [
        ev.SequenceFinished(RequestId("a"), 0, ev.FinishReason.STOP),
        ev.Finished(RequestId("a")),
    ]


async def test_failing_step_fails_its_requests_and_the_engine_goes_on() -> None:
    executor = ScriptedExecutor(repeat([5]))
    async with running(executor) as engine:
        executor.fail_next_step = RuntimeError("out of memory")
        events = await collect(await engine.submit(request("a")))
        assert isinstance(events[-1], ev.Failed)
        assert "out of memory" in events[-1].message
        assert engine.status.state == "running"
        assert tokens(await collect(await engine.submit(request("b")))) == [5, 5, 5]


class BrokenExecutor(ScriptedExecutor):
    def run(self, plan: StepPlan) -> StepResult:
        raise RuntimeError("no device")


async def test_broken_executor_ends_the_engine_and_everybody_is_told() -> None:
    """B53: clients get an error, not silence, and the state says so."""
    async with running(BrokenExecutor(repeat([5]))) as engine:
        for number in range(MAX_FAILED_STEPS):
            events = await collect(await engine.submit(request(f"r{number}")))
            assert isinstance(events[-1], ev.Failed)
        await until(lambda: engine.status.state == "failed")
        assert "no device" in (engine.status.error or "")
        with pytest.raises(EngineStoppedError, match="no device"):
            await engine.submit(request("late"))


async def test_drain_finishes_what_runs_and_takes_no_more() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        stream = await engine.submit(request("a"))
        stopping = asyncio.create_task(engine.stop(drain_s=30))
        await asyncio.sleep(0)
        assert engine.status.state == "draining"
        with pytest.raises(EngineStoppedError, match="draining"):
            await engine.submit(request("b"))
        executor.allow(10)
        events = await collect(stream)
        await stopping
        assert events[-1] == ev.Finished(RequestId("a"))


async def test_stop_without_drain_cancels_with_a_terminal_event() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        stream = await engine.submit(request("a", max_tokens=100))
        executor.allow(2)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        executor.allow(10)
        events = await collect(stream)
        await stopping
        assert events[-1] == ev.Cancelled(RequestId("a"), "server_shutdown")


async def test_deadline_of_a_waiting_request_needs_no_other_work() -> None:
    """B56: it ends in its own reason, and not one token was computed for it."""
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor, max_num_seqs=1) as engine:
        first = await engine.submit(request("a", max_tokens=2))
        await until(executor.is_waiting.is_set)
        asking = asyncio.create_task(engine.submit(request("b", queue_timeout_s=0.0)))
        await asyncio.sleep(0)
        executor.allow(2)
        second = await asking
        events = await collect(second)
        await collect(first)
    assert [type(e) for e in events] == [ev.Expired]
    assert all(new.request_id == "a" for plan in executor.plans for new in plan.new_sequences)


async def test_a_reader_that_waits_is_not_too_slow_however_much_comes_at_once() -> None:
    """One step of many sequences brings more events than are kept for an absent reader."""
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor, max_buffered_events=4, max_num_seqs=16) as engine:
        stream = await engine.submit(request("a", max_tokens=2, n=16, num_prompt=1))
        reading = asyncio.create_task(collect(stream))
        await asyncio.sleep(0)
        executor.allow(10)
        events = await reading
    assert len(tokens(events)) == 32
    assert events[-1] == ev.Finished(RequestId("a"))


async def test_a_stream_with_a_gap_never_ends_as_if_it_were_whole() -> None:
    """The request may end by itself before the cancellation of its late reader is served."""
    asked: list[str] = []
    stream = RequestStream(
        RequestId("a"), 2, lambda _, reason: asked.append(reason), lambda _, index: None
    )
    for number in range(2 * BURST + 3):
        stream.put(ev.Started(RequestId("a"), number, 0.0))
    stream.put(ev.SequenceFinished(RequestId("a"), 0, ev.FinishReason.LENGTH))
    stream.put(ev.Finished(RequestId("a")))
    events = await collect(stream)
    assert asked == ["client_too_slow"]
    assert len(events) == 2 * BURST + 1
    assert events[-1] == ev.Cancelled(RequestId("a"), "client_too_slow")


async def test_a_duplicate_id_is_refused_and_the_first_stream_goes_on() -> None:
    """B58."""
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        stream = await engine.submit(request("a"))
        with pytest.raises(RequestError, match="live"):
            await engine.submit(request("a"))
        executor.allow(10)
        assert tokens(await collect(stream)) == [5, 5, 5]


async def test_an_engine_that_never_started_stops_at_once() -> None:
    limits = SchedulerLimits(
        num_blocks=4, block_size=4, max_model_len=8, max_num_seqs=1, max_num_batched_tokens=8
    )
    engine = AsyncEngine(
        Engine(
            Scheduler(SchedulerConfig(limits=limits)), ScriptedExecutor(repeat([5])), RealClock()
        )
    )
    assert await engine.stop() == 0
    with pytest.raises(EngineStoppedError, match="stopped"):
        await engine.submit(request("a"))


async def test_stop_says_how_many_were_cut_off() -> None:
    executor = ScriptedExecutor(repeat([5]), gated=True)
    async with running(executor) as engine:
        stream = await engine.submit(request("a", max_tokens=100))
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        executor.allow(10)
        assert await stopping == 1
        assert isinstance((await collect(stream))[-1], ev.Cancelled)
