"""Whatever is sent: the answer is 200 or 4xx, strict JSON, and the engine lives."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import CHAT, COMPLETIONS, MODEL, Setup, chat, completion, running, say

from headway.server.requests import ChatMessage, ChatRequest, CompletionRequest

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.floats(0, 1),
    st.text(max_size=8),
    st.sampled_from(["user", "text", "auto", MODEL, "a", 2**63, -1, 256]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=5) | st.integers(-2, 300).map(str), inner, max_size=3),
    ),
    max_leaves=6,
)


def fields_of(*structs: Any) -> st.SearchStrategy[dict[str, Any]]:
    names = sorted({name for struct in structs for name in struct.__struct_fields__})
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=6), VALUES, max_size=4)


MESSAGES = st.lists(fields_of(ChatMessage) | VALUES, max_size=3)


async def _send(path: str, bodies: list[bytes]) -> None:
    async with running(Setup(script=say("ok"))) as service:
        for body in bodies:
            reply = await service.call(path, body)
            assert reply.status == 200 or 400 <= reply.status < 500, (body, reply)
            if reply.status != 200:
                assert reply.error
            elif reply.headers["content-type"].startswith("text/event-stream"):
                assert reply.events[-1] == "[DONE]"
            else:
                assert reply.json
        await service.until_idle()


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_b39_bytes(bodies: list[bytes]) -> None:
    asyncio.run(_send(CHAT, bodies))


@settings(max_examples=60)
@given(st.lists(fields_of(ChatRequest), min_size=1, max_size=8))
def test_b40_chat_fields(changes: list[dict[str, Any]]) -> None:
    bodies = [json.dumps(chat(max_tokens=4) | change).encode() for change in changes]
    asyncio.run(_send(CHAT, bodies))


@settings(max_examples=60)
@given(st.lists(MESSAGES, min_size=1, max_size=8))
def test_b40_messages(conversations: list[Any]) -> None:
    bodies = [json.dumps({"messages": each, "max_tokens": 4}).encode() for each in conversations]
    asyncio.run(_send(CHAT, bodies))


@settings(max_examples=60)
@given(st.lists(fields_of(CompletionRequest), min_size=1, max_size=8))
def test_b40_completion_fields(changes: list[dict[str, Any]]) -> None:
    bodies = [json.dumps(completion(max_tokens=4) | change).encode() for change in changes]
    asyncio.run(_send(COMPLETIONS, bodies))


@settings(max_examples=60)
@given(st.lists(fields_of(ChatRequest), min_size=1, max_size=8), st.integers(0, 200))
def test_b39_truncated_json(changes: list[dict[str, Any]], cut: int) -> None:
    bodies = [json.dumps(chat(max_tokens=4) | change).encode()[:-cut] for change in changes]
    asyncio.run(_send(CHAT, bodies))
