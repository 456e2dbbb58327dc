"""Clients that leave, or stop reading: their work ends at once, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest
from loopback import (
    CHAT,
    COMPLETIONS,
    RawClient,
    Service,
    Setup,
    by_prompt,
    chat,
    completion,
    let_steps_pass,
    listening,
    parse_events,
    raw_client,
    say,
    say_ids,
)

from headway.config.settings import ServerSettings

ENDLESS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 400}


async def gate_holds(service: Service) -> None:
    """Wait until the engine's thread stands at the gate, inside a step."""
    await service.until(service.executor.is_waiting.is_set)


async def pass_steps(service: Service, count: int) -> None:
    """Let steps through and wait until they were computed and the next one stands at the gate."""
    done = len(service.executor.plans) + count
    service.executor.allow(count)
    await service.until_held_after(done)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("num_steps_before", [0, 1, 5])
async def test_b01_b09_work_ends_within_the_step_in_which_the_client_left(
    stream: bool, num_steps_before: int
) -> None:
    async with listening(Setup(script=say("x" * 500), gated=True, max_num_seqs=1)) as service:
        async with raw_client(service) as client:
            await client.send(CHAT, chat(stream=stream, **ENDLESS))
            await gate_holds(service)
            if num_steps_before:
                await pass_steps(service, num_steps_before)
            await client.vanish()
            await service.until_asked()
        num_plans = len(service.executor.plans)
        service.executor.allow()
        await service.until_idle()
        assert len(service.executor.plans) == num_plans + 1
        await service.until(lambda: service.num_ended("cancelled", "client_disconnected") == 1)
        service.executor.allow(100)
        reply = await service.call(CHAT, chat(max_tokens=1))
        assert reply.status == 200


async def test_b03_those_who_leave_the_queue_cost_nothing() -> None:
    async with (
        listening(Setup(script=say("x" * 500), gated=True, max_num_seqs=1)) as service,
        AsyncExitStack() as clients,
    ):
        first = await clients.enter_async_context(raw_client(service))
        await first.send(CHAT, chat(max_tokens=20))
        await gate_holds(service)
        queued = [await clients.enter_async_context(raw_client(service)) for _ in range(5)]
        for i, client in enumerate(queued):
            body = completion(["p1", "p2", "p3"]) if i == 0 else chat(stream=i % 2 == 0)
            await client.send(COMPLETIONS if i == 0 else CHAT, body)
            for _ in range(3 if i == 0 else 1):  # prompts of one list follow each other
                await service.until_asked()
                await pass_steps(service, 1)
        assert service.scheduler.statistics().num_waiting == 7
        for client in queued:
            await client.vanish()
        await service.until_asked(7)
        await pass_steps(service, 1)
        assert service.scheduler.statistics().num_waiting == 0
        service.executor.allow(100)
        assert await first.status() == 200
        await service.until_idle()
        new = [each for plan in service.executor.plans for each in plan.new_sequences]
    assert len(new) == 1


@pytest.mark.parametrize("chunk", [1, 2, 3])
async def test_b05_a_result_that_comes_after_the_client_left_is_dropped(chunk: int) -> None:
    setup = Setup(script=say("x" * 500), gated=True, max_num_batched_tokens=16)
    async with listening(setup) as service:
        async with raw_client(service) as client:
            await client.send(COMPLETIONS, completion("p" * 48, **ENDLESS))
            await gate_holds(service)
            if chunk > 1:
                await pass_steps(service, chunk - 1)
            await client.vanish()
            await service.until_asked()
        service.executor.allow()
        await service.until_idle()
        assert len(service.executor.plans) == chunk
        counts = service.scheduler.statistics()
        assert (counts.num_cancelled, counts.num_finished, counts.num_failed) == (1, 0, 0)


async def test_b07_one_client_leaving_changes_nothing_for_another() -> None:
    script = by_prompt({"alpha": "the answer for alpha", "beta": "x" * 300})
    async with listening(Setup(script=script, gated=True, max_num_seqs=1)) as service:
        async with raw_client(service) as alpha, raw_client(service) as beta:
            await alpha.send(CHAT, chat("alpha", stream=True), "Connection: close\r\n")
            await gate_holds(service)
            await pass_steps(service, 3)
            await beta.send(CHAT, chat("beta", stream=True))
            await service.until_asked()
            await pass_steps(service, 1)
            await beta.vanish()
            await service.until_asked()
            service.executor.allow(1000)
            body = _body(await alpha.rest())
        events = parse_events(body)[:-1]
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
        assert text == "the answer for alpha"
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


def _body(response: bytes) -> bytes:
    """Take the chunks of a response apart."""
    head, _, rest = response.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


@pytest.mark.parametrize("stream", [True, False])
async def test_b01_leaving_is_logged_as_499(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway.server")
    async with listening(Setup(gated=True)) as service:
        async with raw_client(service) as client:
            await client.send(CHAT, chat(stream=stream))
            await gate_holds(service)
        await service.until(lambda: "499" in caplog.text)
        service.executor.allow(100)
        await service.until_idle()
    assert "the client left" in caplog.text


async def test_leaving_inside_the_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway.server")
    async with listening() as service:
        async with raw_client(service) as client:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
            client.writer.write(f'{head}Content-Length: 100\r\n\r\n{{"mo'.encode())
            await client.writer.drain()
        await service.until(lambda: "before its request was complete" in caplog.text)
        assert (await service.call(CHAT, chat())).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_leaving_while_tokenising_submits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from headway.text.tokenizer import Tokenizer

    entered, release = threading.Event(), threading.Event()
    encode = Tokenizer.encode_batch

    def slow(self: Tokenizer, texts: list[str], **options: bool) -> list[list[int]]:
        entered.set()
        release.wait(20)
        return encode(self, texts, **options)

    setup = Setup(context=10_000, num_blocks=1000)
    async with listening(setup) as service:
        monkeypatch.setattr(Tokenizer, "encode_batch", slow)
        async with raw_client(service) as client:
            await client.send(COMPLETIONS, completion("x" * 5000))
            await service.until(entered.is_set)
            health = await service.call("/health", method="GET")
            await client.vanish()
            await service.until(lambda: not _has_request_task())
        release.set()
        assert health.status == 200
        assert service.scheduler.statistics().num_submitted == 0


def _has_request_task() -> bool:
    return any("_run" in repr(task.get_coro()) for task in asyncio.all_tasks())


LONG: dict[str, Any] = {
    "max_tokens": 20_000,
    "ignore_eos": True,
    "logprobs": True,
    "top_logprobs": 20,
}


#: Steps whose events fill every buffer between the server and a client that does not read.
MANY_STEPS = 1_000


def _big(stall_timeout_s: float, max_buffered_events: int) -> Setup:
    settings = ServerSettings(port=0, stream_stall_timeout_s=stall_timeout_s)
    return Setup(
        script=say_ids([ord("x")]),
        gated=True,
        settings=settings,
        context=30_000,
        num_blocks=8_000,
        send_buffer=8_192,
        max_buffered_events=max_buffered_events,
    )


async def _ask_and_not_read(service: Service, clients: list[RawClient]) -> None:
    """Start a long stream on each connection, read its status, and wait until it is cancelled."""
    for client in clients:
        await client.send(CHAT, chat(stream=True, **LONG))
    await gate_holds(service)
    await service.until_asked(len(clients) - service.scheduler.statistics().num_live)
    service.executor.allow(MANY_STEPS)
    for client in clients:
        assert await client.status() == 200
    await service.until(lambda: _num_ended_or_asked(service) >= len(clients))
    service.executor.allow(10)
    await service.until_idle()


def _num_ended_or_asked(service: Service) -> int:
    return service.scheduler.statistics().num_cancelled + len(service.engine._inbox)


async def test_b10_who_does_not_read_loses_the_request() -> None:
    async with listening(_big(0.3, 1_000_000)) as service, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(service, 4096)) for _ in range(3)]
        await _ask_and_not_read(service, clients)
        await service.until(lambda: service.num_ended("cancelled", "client_stalled") == 3)
        service.executor.allow(10)
        reply = await service.call(CHAT, chat(max_tokens=5))
        assert reply.json["choices"][0]["message"]["content"] == "xxxxx"


async def test_b10_who_falls_far_behind_loses_the_request() -> None:
    async with listening(_big(600.0, 64)) as service, raw_client(service, 4096) as client:
        await client.send(CHAT, chat(stream=True, **LONG))
        pacing = asyncio.create_task(let_steps_pass(service.executor))
        await service.until(lambda: service.num_ended("cancelled", "client_too_slow") == 1)
        await service.until_idle()
        pacing.cancel()


async def test_b10_a_stalled_connection_is_reset() -> None:
    async with listening(_big(0.3, 1_000_000)) as service, raw_client(service, 4096) as client:
        await _ask_and_not_read(service, [client])
        with pytest.raises(ConnectionError):
            await client.rest()


async def test_a_slow_but_steady_reader_keeps_its_stream() -> None:
    setup = Setup(script=say("y" * 300), settings=ServerSettings(port=0))
    async with listening(setup) as service:
        async with raw_client(service, 4096) as client:
            body = chat(stream=True, logprobs=True, top_logprobs=20)
            await client.send(CHAT, body, "Connection: close\r\n")
            received = b""
            while part := await client.reader.read(512):
                received += part
        events = parse_events(_body(received))
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1])
    assert text == "y" * 300


async def test_requests_on_one_connection_follow_each_other() -> None:
    async with listening() as service, raw_client(service) as client:
        data = json.dumps(chat()).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        last = request.replace(b"Host: t", b"Host: t\r\nConnection: close")
        client.writer.write(request + request + last)
        answers = await client.rest()
    assert answers.count(b"HTTP/1.1 200 OK") == 3
