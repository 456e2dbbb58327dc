"""Ids of clients are echoed and never used; keys guard what does work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loopback import CHAT, COMPLETIONS, Setup, chat, completion, listening, raw_client, running, say

from headway.config.settings import ServerSettings
from headway.core.request import Request


async def test_b58_the_same_id_twice_harms_nobody() -> None:
    setup = Setup(script=say("fine"), gated=True)
    async with running(setup) as service:
        headers = {"x-request-id": "same"}
        body = chat(request_id="same")
        tasks = [asyncio.create_task(service.call(CHAT, body, headers=headers)) for _ in range(3)]
        await service.until(service.executor.is_waiting.is_set)
        service.executor.allow(1000)
        replies = [await task for task in tasks]
    assert [reply.status for reply in replies] == [200] * 3
    assert {reply.headers["x-request-id"] for reply in replies} == {"same"}
    assert len({reply.json["id"] for reply in replies}) == 3


async def test_b58_internal_ids_are_always_our_own() -> None:
    seen: list[Request] = []
    async with running() as service:
        submit = service.engine.submit

        async def spy(request: Request) -> Any:
            seen.append(request)
            return await submit(request)

        service.engine.submit = spy  # type: ignore[method-assign]
        for _ in range(3):
            await service.call(CHAT, chat(request_id="x"), headers={"x-request-id": "x"})
    assert len({request.request_id for request in seen}) == 3
    assert all(request.request_id.startswith("req-") for request in seen)


async def test_b58_long_and_odd_ids_are_cut_to_what_is_safe() -> None:
    async with running() as service:
        long = await service.call(CHAT, chat(request_id="y" * 1_000_000))
        odd = await service.call(CHAT, chat(request_id="a\r\nSet-Cookie: b\u2028ď"))
        header = await service.call(CHAT, chat(), headers={"x-request-id": "z" * 1_000_000})
    assert long.headers["x-request-id"] == "y" * 128
    assert odd.headers["x-request-id"] == "aSet-Cookie:b"
    assert header.headers["x-request-id"] == "z" * 128


async def test_b58_a_huge_header_over_the_wire() -> None:
    async with listening() as service, raw_client(service) as client:
        header = "X-Request-Id: " + "z" * 1_000_000 + "\r\nConnection: close\r\n"
        await client.send(CHAT, chat(), header)
        response = await client.rest()
    assert response.startswith((b"HTTP/1.1 200", b"HTTP/1.1 4"))


async def test_every_response_has_an_id() -> None:
    async with running() as service:
        replies = [
            await service.call(CHAT, chat()),
            await service.call(CHAT, b"{"),
            await service.call("/nothing"),
            await service.call("/health", method="GET"),
            await service.call(CHAT, chat(stream=True)),
        ]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert len(set(ids)) == len(ids)
    assert all(len(each) == 32 for each in ids)


KEYS = Setup(settings=ServerSettings(api_key=("secret-1", "secret-2")))
BAD_KEYS = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": "Bearer "},
    {"authorization": "secret-1"},
    {"authorization": "Basic secret-1"},
    {"authorization": "Bearer secret-1x"},
    {"authorization": "Bearer \udcff".encode("utf-8", "surrogateescape").decode("latin-1")},
]


@pytest.mark.parametrize("headers", BAD_KEYS)
async def test_a_missing_or_wrong_key_is_401(headers: dict[str, str]) -> None:
    async with running(KEYS) as service:
        for path in (CHAT, COMPLETIONS, "/v1/models", "/tokenize"):
            reply = await service.call(path, chat(), headers=headers)
            assert reply.status == 401
            assert reply.error["code"] == "invalid_api_key"
            assert reply.headers["www-authenticate"] == "Bearer"
            assert "x-request-id" in reply.headers


@pytest.mark.parametrize("key", ["schlüssel-1", "ключ", "鍵"])
async def test_a_key_may_be_any_utf8(key: str) -> None:
    settings = ServerSettings(api_key=(key,))
    async with running(Setup(settings=settings)) as service:
        for encoding, status in (("utf-8", 200), ("utf-16-le", 401)):
            raw = b"Bearer " + key.encode(encoding)
            headers = {"authorization": raw.decode("latin-1")}
            reply = await service.call(COMPLETIONS, completion(), headers=headers)
            assert reply.status == status


async def test_keys_open_what_does_work_and_probes_need_none() -> None:
    seen: list[Request] = []
    async with running(KEYS) as service:
        submit = service.engine.submit

        async def spy(request: Request) -> Any:
            seen.append(request)
            return await submit(request)

        service.engine.submit = spy  # type: ignore[method-assign]
        for key in ("secret-1", "secret-2", "secret-1"):
            headers = {"authorization": f"bearer {key}"}
            reply = await service.call(COMPLETIONS, completion(), headers=headers)
            assert reply.status == 200
        for path in ("/health", "/livez", "/readyz", "/metrics", "/version"):
            assert (await service.call(path, method="GET")).status == 200
    first, second, third = (request.tenant for request in seen)
    assert first == third != second
    assert "secret" not in first


async def test_tokenize_and_detokenize() -> None:
    async with running() as service:
        tokens = (await service.call("/tokenize", {"prompt": "ď", "return_token_strs": True})).json
        text = (await service.call("/detokenize", {"tokens": [*b"hi", 256]})).json
        messages = {"messages": [{"role": "user", "content": "q"}]}
        conversation = (await service.call("/tokenize", messages)).json
        neither = await service.call("/tokenize", {})
        both = await service.call("/tokenize", {"prompt": "x", **messages})
        bad = await service.call("/detokenize", {"tokens": [10_000]})
        wrong = await service.call("/tokenize", {"prompt": "x", "model": "other"})
    assert tokens["tokens"] == [0xC4, 0x8F]
    assert tokens["count"] == 2
    assert tokens["max_model_len"] == service.setup.context
    assert tokens["token_strs"] == ["\ufffd", "\ufffd"]
    assert text == {"prompt": "hi<eos>"}
    assert bytes(conversation["tokens"]) == b"u:q\na:"
    assert neither.status == both.status == bad.status == 400
    assert bad.error["param"] == "tokens"
    assert wrong.status == 404
