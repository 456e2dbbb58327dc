"""URLs, and asking a server for its models."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_server import Call, Reply, Server, serving

from headway.bench import TargetError, parse_url
from headway.bench.discovery import find_model
from headway.bench.pool import Pool
from headway.bench.target import Target, resolve
from headway.bench.wire import get


@pytest.mark.parametrize(
    ("url", "target", "shown"),
    [
        ("http://a:1", Target("a", 1), "http://a:1"),
        ("a:8000", Target("a", 8000), "http://a:8000"),
        ("localhost", Target("localhost", 80), "http://localhost"),
        ("http://a:1/v1", Target("a", 1), "http://a:1"),
        ("http://a:1/v1/", Target("a", 1), "http://a:1"),
        ("https://a/x/v1", Target("a", 443, "/x", True), "https://a/x"),
        ("https://a:8443", Target("a", 8443, "", True), "https://a:8443"),
        ("http://[::1]:9", Target("::1", 9), "http://[::1]:9"),
    ],
)
def test_urls_are_taken_apart(url: str, target: Target, shown: str) -> None:
    assert parse_url(url) == target
    assert target.url == shown


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a:x", "http://a:99999", "http://k@a", "http://a?b=1", ""]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(TargetError):
        parse_url(url)


def test_requests_name_the_host_and_the_path() -> None:
    head = get(Target("::1", 9, "/x"), "models", {"A": "b"})
    assert head == b"GET /x/v1/models HTTP/1.1\r\nHost: [::1]:9\r\nA: b\r\n\r\n"


async def nothing(call: Call, reply: Reply) -> None:
    raise AssertionError("only models are asked for")


async def found(server: Server, wanted: str | None) -> tuple[str, int | None]:
    pool = Pool(await resolve(server.target))
    try:
        return await find_model(pool, server.target, {}, wanted)
    finally:
        pool.close()


def models(*names: str) -> dict[str, Any]:
    return {"data": [{"id": name, "owned_by": "x", "meta": None} for name in names]}


async def test_the_only_model_is_taken_with_its_context() -> None:
    async with serving(nothing) as server:
        assert await found(server, None) == ("tiny", 512)
        assert await found(server, "tiny") == ("tiny", 512)


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        (models("a", "b"), None, "several models; choose with --model: a, b"),
        (models("a", "b"), "c", "no model c; it has: a, b"),
        (models(), "c", "it has: none"),
        ([], None, "not as OpenAI's API has it"),
        ({"data": 3}, None, "not as OpenAI's API has it"),
    ],
)
async def test_what_cannot_be_chosen_is_said(value: Any, wanted: str | None, message: str) -> None:
    async with serving(nothing, value) as server:
        with pytest.raises(TargetError, match=message):
            await found(server, wanted)


async def test_a_model_may_be_chosen_of_several() -> None:
    async with serving(nothing, models("a", "b")) as server:
        assert await found(server, "b") == ("b", None)


async def test_a_server_that_is_not_there_is_said() -> None:
    async with serving(nothing) as server:
        pass
    with pytest.raises(TargetError, match="can't be asked for its models: no connection"):
        await found(server, None)


async def test_an_unknown_host_is_said() -> None:
    with pytest.raises(TargetError, match="is no known host"):
        await resolve(Target("no-such-host.invalid", 1))
