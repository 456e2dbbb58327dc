"""Bodies with too much in them are refused before they cost much, and the client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from loopback import (
    CHAT,
    COMPLETIONS,
    CONTEXT,
    Setup,
    call,
    completion,
    running,
)

from headway.config.settings import ServerSettings

SMALL_BODIES = Setup(settings=ServerSettings(max_body_bytes=1000))


async def test_the_rest_of_a_body_that_is_too_large_is_read_and_dropped() -> None:
    async with running(SMALL_BODIES) as service:
        for headers in ({"content-length": "30000"}, {}):
            chunks = [b"x" * 300] * 100
            received: list[Any] = []
            reply = await call(
                service.app, CHAT, headers=headers, chunks=chunks, on_receive=received.append
            )
            assert reply.status == 413
            assert len(received) == 100
        received = []
        asks_first = {"content-length": "30000", "expect": "100-continue"}
        reply = await call(
            service.app, CHAT, headers=asks_first, chunks=chunks, on_receive=received.append
        )
    assert reply.status == 413
    assert not received


async def test_the_rest_of_a_body_is_dropped_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.server.body.MAX_DISCARDED_BYTES", 3000)
    monkeypatch.setattr("headway.server.body.DISCARD_TIMEOUT_S", 0.01)
    received: list[Any] = []
    async with running(SMALL_BODIES) as service:
        chunks = [b"x" * 300] * 100
        reply = await call(service.app, CHAT, chunks=chunks, on_receive=received.append)
        stalled = await call(service.app, CHAT, headers={"content-length": "2000"}, chunks=[])
    assert reply.status == stalled.status == 413
    assert len(received) == 14


def _message(content: Any) -> dict[str, Any]:
    return {"role": "nobody", "content": content}


TOO_MANY: list[tuple[str, Any, str | None]] = [
    (CHAT, {"messages": [_message("x")] * 2049}, "messages"),
    ("/tokenize", {"messages": [_message("x")] * 2049}, "messages"),
    (CHAT, {"messages": [_message([{"type": "image"}] * 1025)] * 2}, "messages"),
    (COMPLETIONS, completion([[]] * 1025), "prompt"),
    (COMPLETIONS, completion([""] * 1025), "prompt"),
    (COMPLETIONS, completion([[]] * 2**18), None),
    (COMPLETIONS, completion([1] * 600 + ["x"]), "prompt"),
    ("/detokenize", {"tokens": [-1] * (2**18 + 1)}, "tokens"),
    ("/tokenize", {"prompt": "x" * (CONTEXT + 1)}, "prompt"),
    ("/tokenize", {"messages": [{"role": "user", "content": "x" * CONTEXT}]}, "messages"),
]


@pytest.mark.parametrize(("path", "body", "param"), TOO_MANY)
async def test_what_is_too_many_is_counted_before_it_is_looked_at(
    path: str, body: Any, param: str | None
) -> None:
    async with running() as service:
        reply = await service.call(path, body)
        assert not service.executor.plans
    assert reply.status == 400
    assert reply.error["param"] == param
    assert any(
        each in reply.error["message"] for each in ("at most", "more than", "maximum", "only")
    )
