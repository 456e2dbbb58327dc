"""Queues, time-outs, keep-alives and failures, as clients see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loopback import (
    CHAT,
    COMPLETIONS,
    Reply,
    Service,
    Setup,
    chat,
    completion,
    listening,
    parse_events,
    raw_client,
    running,
    say,
)

from headway.config import ClassSettings, ServerSettings
from headway.engine.clock import VirtualClock


async def gate_holds(service: Service) -> None:
    await service.until(service.executor.is_waiting.is_set)


def ask(service: Service, **fields: Any) -> asyncio.Task[Reply]:
    return asyncio.create_task(service.call(CHAT, chat(**fields)))


@pytest.mark.parametrize("stream", [False, True])
async def test_b55_a_full_queue_refuses_at_once_and_says_when_to_come_back(stream: bool) -> None:
    setup = Setup(gated=True, max_num_seqs=1, max_queue_requests=1)
    async with running(setup) as service:
        first = ask(service)
        await gate_holds(service)
        others = [ask(service, stream=stream) for _ in range(5)]
        await service.until_asked(5)
        service.executor.allow(1)
        await service.until(lambda: sum(task.done() for task in others) == 4)
        refused = [task.result() for task in others if task.done()]
        service.executor.allow(1000)
        accepted = [(await task).status for task in (first, *others)]
    for reply in refused:
        assert reply.status == 503
        assert reply.error["code"] == "queue_full"
        assert reply.error["type"] == "service_unavailable"
        assert int(reply.headers["retry-after"]) >= 1
    assert accepted.count(200) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_b36_b56_a_queue_timeout_has_a_status_of_its_own(stream: bool) -> None:
    clock = VirtualClock()
    classes = {"default": ClassSettings(queue_timeout_s=1.0)}
    setup = Setup(gated=True, max_num_seqs=1, classes=classes, clock=clock)
    async with running(setup) as service:
        first = ask(service)
        await gate_holds(service)
        second = ask(service, content="second", stream=stream)
        await service.until_asked()
        service.executor.allow(1)
        await service.until(lambda: service.scheduler.statistics().num_waiting == 1)
        await gate_holds(service)
        clock.sleep(2.0)
        service.executor.allow(1000)
        reply = await second
        assert (await first).status == 200
        new = [each for plan in service.executor.plans for each in plan.new_sequences]
    assert reply.status == 503
    assert reply.error["code"] == "queue_timeout"
    assert "retry-after" in reply.headers
    assert len(new) == 1  # not a token of the second was computed


async def test_b56_a_deadline_in_decode_is_an_error_and_no_length() -> None:
    clock = VirtualClock()
    classes = {"default": ClassSettings(request_timeout_s=1.0)}
    setup = Setup(script=say("x" * 300), gated=True, classes=classes, clock=clock)
    async with running(setup) as service:
        whole, stream = ask(service), ask(service, stream=True)
        await gate_holds(service)
        service.executor.allow(3)
        await service.until_held_after(3)
        clock.sleep(2.0)
        service.executor.allow(1)
        whole_reply, stream_reply = await whole, await stream
        await service.until_idle()
    assert whole_reply.status == 408
    assert whole_reply.error["code"] == "request_timeout"
    assert whole_reply.headers["x-should-retry"] == "false"
    assert stream_reply.status == 200
    *chunks, error, done = stream_reply.events
    assert done == "[DONE]"
    assert error["error"]["code"] == "request_timeout"
    assert error["error"].keys() == {"message", "type", "param", "code"}
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


async def test_a_failure_inside_a_stream_is_an_event_and_the_stream_ends() -> None:
    def script(new: Any, position: int) -> int:
        if position == 3:
            raise RuntimeError("secret")
        return ord("x")

    setup = Setup(script=script, gated=True)
    async with running(setup) as service:
        task = ask(service, stream=True)
        await gate_holds(service)
        service.executor.allow(2)
        await service.until_held_after(2)
        service.executor.allow(100)
        reply = await task
    *chunks, error, done = reply.events
    assert chunks
    assert done == "[DONE]"
    assert error["error"]["code"] == "engine_error"
    assert b"secret" not in reply.body


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_token_is_json(stream: bool) -> None:
    def script(new: Any, position: int) -> int:
        raise RuntimeError("secret")

    async with running(Setup(script=script)) as service:
        reply = await service.call(COMPLETIONS, completion(stream=stream))
    assert reply.status == 500
    assert reply.error["type"] == "server_error"
    assert reply.error["code"] == "engine_error"
    assert b"secret" not in reply.body


async def test_keep_alives_are_comments_that_start_before_the_first_token() -> None:
    settings = ServerSettings(port=0, sse_keep_alive_s=0.01)
    setup = Setup(script=say("Hey"), gated=True, settings=settings)
    async with listening(setup) as service, raw_client(service) as client:
        await client.send(CHAT, chat(stream=True), "Connection: close\r\n")
        head = await client.reader.readuntil(b"\r\n\r\n")
        for _ in range(3):
            chunk = await client.reader.readuntil(b"\n\n\r\n")
            assert chunk.split(b"\r\n")[1] == b": keep-alive\n\n"
        service.executor.allow(100)
        rest = await client.rest()
    assert head.startswith(b"HTTP/1.1 200 ")
    lines = [line for line in rest.split(b"\n") if line.startswith((b"data:", b":"))]
    events = parse_events(b"".join(line + b"\n\n" for line in lines))
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"


async def test_several_streamed_prompts_end_together_on_failure() -> None:
    def script(new: Any, position: int) -> int:
        if position == 2 and bytes(new.prompt_token_ids) == b"b":
            raise RuntimeError("x")
        return ord("x")

    async with running(Setup(script=script, gated=True)) as service:
        body = completion(["a", "b"], max_tokens=400, stream=True)
        task = asyncio.create_task(service.call(COMPLETIONS, body))
        await gate_holds(service)
        service.executor.allow(1)
        await service.until_held_after(1)
        service.executor.allow(1000)
        reply = await task
        await service.until_idle()
    if reply.status == 200:
        assert reply.events[-2]["error"]["code"] == "engine_error"
        assert reply.events[-1] == "[DONE]"
    else:
        assert reply.error["code"] == "engine_error"
