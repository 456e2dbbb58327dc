"""The client over HTTP: what it sends, and what becomes of every kind of answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from client import an_arrival, client_of
from scripted_server import (
    Call,
    Reply,
    Script,
    delta,
    serving,
    text,
    usage,
    whole_answer,
)

from headway.report import Outcome, Record
from headway.workload import Conduct, Prompt


async def answered(script: Script, arrival=None, **dialect) -> Record:
    async with serving(script) as server:
        client = await client_of(server, **dialect)
        try:
            return await client.send(arrival or an_arrival())
        finally:
            client.pool.close()


# ------------------------------------------------------------------ good answers


async def test_a_whole_answer_is_counted_as_the_server_does() -> None:
    record = await answered(whole_answer)
    assert record.outcome is Outcome.COMPLETED
    assert (record.input_tokens, record.output_tokens) == (7, 3)
    assert 1 <= len(record.token_times) <= 3
    assert record.sent_s is not None
    assert record.ended_s is not None
    assert record.sent_s < record.token_times[0] <= record.ended_s


async def test_a_conversation_begins_with_its_first_word_and_not_with_its_role() -> None:
    asked: list[Call] = []

    async def script(call: Call, reply: Reply) -> None:
        asked.append(call)
        await reply.begin()
        await reply.event(delta(role="assistant", content=""))
        await reply.event(delta(role="assistant", content=None))  # llama.cpp's
        await reply.event(delta(content="Hi"))
        await reply.event(delta(reasoning_content="hm"))
        await reply.event(delta(finish="stop"))
        await reply.event(usage(31, 3, cached=16))
        await reply.event("[DONE]")
        await reply.end()

    record = await answered(script, endpoint="chat")
    assert record.outcome is Outcome.COMPLETED
    assert len(record.token_times) == 2
    assert (record.input_tokens, record.output_tokens) == (31, 3)
    assert record.num_cached_tokens == 16
    assert asked[0].path == "/v1/chat/completions"


async def test_usage_may_come_with_the_last_chunk_as_llama_cpp_has_it() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        await reply.event(text(" the"))
        await reply.event({**text("", "length"), **{"usage": usage(3, 2)["usage"], "timings": {}}})
        await reply.event("[DONE]")
        await reply.end()

    record = await answered(script)
    assert (record.outcome, record.output_tokens) == (Outcome.COMPLETED, 2)


async def test_without_usage_pieces_are_counted_and_it_is_said() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        await reply.event(text(" a"))
        await reply.event(text(" b", "stop"))
        await reply.event("[DONE]")
        await reply.end()

    async with serving(script) as server:
        client = await client_of(server)
        record = await client.send(an_arrival())
        client.pool.close()
    assert (record.outcome, record.output_tokens, record.input_tokens) == (Outcome.COMPLETED, 2, 5)
    assert client.sender.num_uncounted == 1


async def test_an_answer_of_nothing_but_its_end_has_a_first_token() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        await reply.event(text("", "stop"))
        await reply.event(usage(7, 1))
        await reply.end()

    record = await answered(script)
    assert (record.outcome, len(record.token_times)) == (Outcome.COMPLETED, 1)


async def test_events_may_be_cut_anywhere() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        data = b": keep-alive\r\n\r\n" + f"data: {json.dumps(text(' ä'))}\r\n\r\n".encode()
        data += b"event: x\nid: 1\n" + f"data:{json.dumps(text('', 'stop'))}\n\n".encode()
        data += f"data: {json.dumps(usage(1, 2))}\n\ndata: [DONE]\n\n".encode()
        for byte in data:
            await reply.part(bytes([byte]))
        await reply.end()

    record = await answered(script)
    assert (record.outcome, record.output_tokens) == (Outcome.COMPLETED, 2)


async def test_an_answer_may_end_with_its_connection() -> None:
    async def script(call: Call, reply: Reply) -> None:
        body = f"data: {json.dumps(text(' a', 'stop'))}\n\n".encode()
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + body)
        reply.drop()

    assert (await answered(script)).outcome is Outcome.COMPLETED


# ------------------------------------------------------------------ what is sent


async def test_requests_are_as_the_workload_says() -> None:
    async with serving(whole_answer) as server:
        client = await client_of(
            server, headers={"Authorization": "Bearer k"}, extra={"temperature": 0}
        )
        await client.send(an_arrival(class_name="fast", priority=-1))
        client.pool.close()
    (call,) = server.calls
    assert call.headers["authorization"] == "Bearer k"
    assert call.headers["host"] == f"127.0.0.1:{server.target.port}"
    prompt = call.body.pop("prompt")
    assert len(prompt.split(" ")) == 5
    assert call.body == {
        "model": "tiny",
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "service_tier": "fast",
        "priority": -1,
        "temperature": 0,
    }


async def test_class_and_tenant_may_go_into_headers_and_the_prompt_into_ids() -> None:
    async with serving(whole_answer) as server:
        client = await client_of(
            server,
            class_header="X-Class",
            tenant_header="X-Tenant",
            prompt_format="ids",
            ignore_eos=False,
        )
        await client.send(an_arrival(class_name="fast", tenant="one"))
        client.pool.close()
    (call,) = server.calls
    assert (call.headers["x-class"], call.headers["x-tenant"]) == ("fast", "one")
    assert not call.body.keys() & {"service_tier", "ignore_eos"}
    assert len(call.body["prompt"]) == 5
    assert all(isinstance(each, int) for each in call.body["prompt"])


async def test_real_prompts_go_as_they_are() -> None:
    messages = ({"role": "user", "content": "hi"},)
    async with serving(whole_answer) as server:
        chat = await client_of(server, endpoint="chat")
        await chat.send(an_arrival(prompt=Prompt(messages=messages)))
        await chat.send(an_arrival(prompt=Prompt(text="once")))
        plain = await client_of(server)
        await plain.send(an_arrival(prompt=Prompt(text="once")))
        chat.pool.close()
        plain.pool.close()
    said = [call.body.get("messages", call.body.get("prompt")) for call in server.calls]
    assert said == [list(messages), [{"role": "user", "content": "once"}], "once"]


# ------------------------------------------------------------------ bad answers


def refusing(status: int, value: object) -> Script:
    async def script(call: Call, reply: Reply) -> None:
        await reply.json(status, value)

    return script


def sending(data: bytes) -> Script:
    async def script(call: Call, reply: Reply) -> None:
        await reply.raw(data)
        reply.drop()

    return script


def streaming(*events: object, then: Callable[[Reply], Awaitable[None]] | None = None) -> Script:
    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        for each in events:
            await (reply.part(each) if isinstance(each, bytes) else reply.event(each))
        if then is None:
            await reply.end()
        else:
            await then(reply)

    return script


async def dropping(reply: Reply) -> None:
    reply.drop()


ENVELOPE = {"error": {"message": "full", "type": "service_unavailable", "code": "queue_full"}}
VLLM = {"error": {"message": "too long", "type": "BadRequestError", "code": 400}}
SGLANG = {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}


@pytest.mark.parametrize(
    ("script", "kind", "detail"),
    [
        (refusing(429, ENVELOPE), "http 429 queue_full", "full"),
        (refusing(400, VLLM), "http 400 BadRequestError", "too long"),
        (refusing(400, SGLANG), "http 400 BadRequestError", "bad"),
        (refusing(500, "oops"), "http 500", "oops"),
        (refusing(503, []), "http 503", "[]"),
        (refusing(200, {"choices": []}), "bad answer", "no stream of events"),
        (sending(b"HTTP/1.1 502 Bad\r\ncontent-length: 4\r\n\r\n<a>\n"), "http 502", "<a>"),
        (sending(b"HTTP/1.1 302 X\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"), "http 302", ""),
        (sending(b"what?\r\n\r\n"), "not HTTP", ""),
        (sending(b"\x16\x03\x01\x02\x00"), "not HTTP", ""),
        (sending(b""), "no answer", "closed"),
        (sending(b"HTTP/1.1 200 OK\r\ncontent-le"), "cut off", "closed"),
        (streaming(text(" a"), then=dropping), "cut off", "closed"),
        (streaming(text(" a")), "cut off", "without a reason"),
        (streaming(), "cut off", "without a reason"),
        (streaming(text(" a"), ENVELOPE), "stream error queue_full", "full"),
        (streaming({"error": "gone"}), "stream error", "gone"),
        (streaming(b'error: {"code": 500}\n\n'), "stream error", "500"),
        (streaming("{"), "bad answer", "truncated"),
        (streaming('{"choices": 3}'), "bad answer", "Expected"),
        (streaming(b"data: \xff\xfe\n\n"), "bad answer", ""),
        (streaming("null"), "bad answer", "Expected"),
    ],
)
async def test_every_failure_has_its_kind(script: Script, kind: str, detail: str) -> None:
    record = await answered(script)
    assert (record.outcome, record.error) == (Outcome.FAILED, kind)
    assert detail in record.detail
    assert record.ended_s is not None


async def test_nobody_there_is_a_failure_of_its_own() -> None:
    async with serving(whole_answer) as server:
        pass
    client = await client_of(server)
    record = await client.send(an_arrival())
    assert (record.outcome, record.error) == (Outcome.FAILED, "no connection")


async def test_a_server_that_hangs_is_a_timeout_and_is_left() -> None:
    gone = asyncio.Event()

    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        await reply.event(text(" a"))
        await reply.until_gone()
        gone.set()

    async with serving(script) as server:
        client = await client_of(server, timeout_s=0.05)
        record = await client.send(an_arrival())
        assert (record.outcome, record.error) == (Outcome.FAILED, "timeout")
        async with asyncio.timeout(20):
            await gone.wait()


# ------------------------------------------------------------------ conduct


async def test_a_client_leaves_after_its_tokens() -> None:
    gone = asyncio.Event()

    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        await reply.event(text(" a"))
        await reply.event(text(" b"))
        await reply.until_gone()
        gone.set()

    async with serving(script) as server:
        client = await client_of(server)
        record = await client.send(an_arrival(conduct=Conduct(leaves_after_tokens=2)))
        async with asyncio.timeout(20):
            await gone.wait()
    assert (record.outcome, record.error) == (Outcome.CANCELLED, "")
    assert record.output_tokens == 2


async def test_a_client_leaves_after_its_time() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.until_gone()

    async with serving(script) as server:
        client = await client_of(server)
        record = await client.send(an_arrival(conduct=Conduct(leaves_after_s=1.01)))
    assert record.outcome is Outcome.CANCELLED


async def test_a_stalled_reader_gets_the_rest_when_it_reads_on() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.begin()
        for number in range(400):
            await reply.event(text(f" {'x' * 500}{number}"))
        await reply.event(text("", "length"))
        await reply.end()

    conduct = Conduct(stalls_after_tokens=1, stalls_for_s=0.05)
    async with serving(script) as server:
        client = await client_of(server)
        record = await client.send(an_arrival(conduct=conduct))
        after = await client.send(an_arrival())
        assert server.num_connections == 2  # the one with the small buffer isn't used again
        client.pool.close()
    assert (record.outcome, record.stalled) == (Outcome.COMPLETED, True)
    assert len(record.token_times) == len(after.token_times) == 400


# ------------------------------------------------------------------ connections


async def test_connections_are_used_again_one_after_the_other() -> None:
    async with serving(whole_answer) as server:
        client = await client_of(server)
        for _ in range(5):
            assert (await client.send(an_arrival())).outcome is Outcome.COMPLETED
        assert server.num_connections == 1
        client.pool.close()


async def test_each_of_many_at_once_has_its_own_connection() -> None:
    everybody = asyncio.Event()

    async def script(call: Call, reply: Reply) -> None:
        if len(server.calls) == 50:
            everybody.set()
        await everybody.wait()
        await whole_answer(call, reply)

    async with serving(script) as server:
        client = await client_of(server)
        sent = [client.send(an_arrival(), str(number)) for number in range(50)]
        records = await asyncio.gather(*sent)
        assert server.num_connections == 50
        client.pool.close()
    assert {each.outcome for each in records} == {Outcome.COMPLETED}
    assert len({call.body["prompt"] for call in server.calls}) == 50


async def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def script(call: Call, reply: Reply) -> None:
        if len(server.calls) == 2:  # an idle connection that the server gives up just then
            reply.drop()
            return
        await whole_answer(call, reply)

    async with serving(script) as server:
        client = await client_of(server)
        first, second = await client.send(an_arrival()), await client.send(an_arrival())
        client.pool.close()
    assert (first.outcome, second.outcome) == (Outcome.COMPLETED, Outcome.COMPLETED)
    assert len(server.calls) == 3


async def test_connection_close_is_obeyed() -> None:
    async def script(call: Call, reply: Reply) -> None:
        body = f"data: {json.dumps(text(' a', 'stop'))}\n\n"
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
        await reply.raw(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())

    async with serving(script) as server:
        client = await client_of(server)
        for _ in range(3):
            assert (await client.send(an_arrival())).outcome is Outcome.COMPLETED
        assert server.num_connections == 3
        client.pool.close()


async def test_a_100_comes_before_the_answer() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        await whole_answer(call, reply)

    assert (await answered(script)).outcome is Outcome.COMPLETED
