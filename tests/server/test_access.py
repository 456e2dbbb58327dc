"""Each request that ends is counted, and leaves a line that joins its ids where it matters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from loopback import (
    CHAT,
    COMPLETIONS,
    MODEL,
    Service,
    Setup,
    call,
    chat,
    completion,
    listening,
    raw_client,
    running,
    say,
)
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from headway.config.settings import ServerSettings
from headway.core.plan import NewSequence
from headway.server.access import Access, record_of

SECRET = "the secret of the prompt"


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    yield
    assert SECRET not in caplog.text


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "headway.server.access"]


def counted(service: Service) -> dict[tuple[str, str], float]:
    """Requests by route and status."""
    page = service.metrics.render().decode()
    return {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "headway_http_requests_total"
    }


async def test_every_answer_is_counted_by_route_and_status() -> None:
    settings = ServerSettings(port=0, api_key=("k",))
    key = {"authorization": "Bearer k"}
    async with running(Setup(settings=settings)) as service:
        await service.call(CHAT, chat(), headers=key)
        await service.call(CHAT, chat())
        await service.call(COMPLETIONS, completion("x" * 9999), headers=key)
        await service.call(COMPLETIONS, {"model": MODEL}, headers=key)
        await service.call(f"/v1/models/{MODEL}", method="GET", headers=key)
        await service.call("/v1/models/no/such", method="GET", headers=key)
        await service.call("/livez", method="GET")
        await service.call("/livez")
        for number in range(5):
            await service.call(f"/secret/{number}", method="GET")
        found = counted(service)
    assert found == {
        (CHAT, "200"): 1,
        (CHAT, "401"): 1,
        (COMPLETIONS, "400"): 2,
        ("/v1/models/{model}", "200"): 1,
        ("/v1/models/{model}", "404"): 1,
        ("/livez", "200"): 1,
        ("/livez", "405"): 1,
        ("other", "404"): 5,
    }


async def test_what_went_well_is_logged_only_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as service:
        await service.call(CHAT, chat(SECRET))
        await service.call("/livez", method="GET")
        await service.call("/nowhere", method="GET")  # not work, so nobody's loss
    assert not lines(caplog)
    settings = ServerSettings(port=0, access_log=True)
    async with running(Setup(settings=settings)) as service:
        await service.call(CHAT, chat(SECRET), headers={"x-request-id": "mine"})
        await service.call("/a b\n", method="GET")
    ok, odd = lines(caplog)
    assert ok.startswith(f'test - "POST {CHAT}" 200, ')
    assert " s, mine" in ok
    assert odd.startswith('test - "GET /a%20b%0A" 404 not_found, ')


async def test_the_line_of_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as service:
        await service.call(CHAT, chat(SECRET, max_tokens=9999), headers={"x-request-id": "mine"})
        anonymous = await service.call(CHAT, chat(SECRET, tempratur=1))
        await service.call(COMPLETIONS, completion(SECRET, request_id="body", n=0))
    long, unknown, wrong = lines(caplog)
    assert long.startswith(f'test - "POST {CHAT}" 400 context_length_exceeded, ')
    assert long.endswith(" s, mine")
    assert unknown.endswith(f" s, {anonymous.headers['x-request-id']}")
    assert wrong.endswith(" s, body")


async def test_the_line_of_a_full_queue(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup(gated=True, max_num_seqs=1, max_queue_requests=0)
    async with running(setup) as service:
        first = asyncio.create_task(service.call(CHAT, chat()))
        await service.until(service.executor.is_waiting.is_set)
        second = asyncio.create_task(service.call(CHAT, chat(), headers={"x-request-id": "late"}))
        await service.until_asked()
        service.executor.allow(1000)
        assert (await first).status == 200
        assert (await second).status == 503
        assert counted(service) == {(CHAT, "200"): 1, (CHAT, "503"): 1}
    assert [line.partition(" 503 ")[2].partition(",")[0] for line in lines(caplog)] == [
        "queue_full"
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_line_of_a_failure(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    def script(_: NewSequence, position: int) -> int:
        if position == 2:
            raise ValueError("broken")
        return ord("a")

    async with running(Setup(script=script)) as service:
        body = completion([SECRET, SECRET], stream=stream, max_tokens=9)
        reply = await service.call(COMPLETIONS, body, headers={"x-request-id": "mine"})
    assert reply.status == (200 if stream else 500)
    (line,) = lines(caplog)
    assert f" {reply.status} engine_error, " in line
    assert " s, mine" in line


async def test_the_line_of_a_client_that_left(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Setup(script=say("x" * 99), gated=True)) as service:
        async with raw_client(service) as client:
            await client.send(CHAT, chat(SECRET), "X-Request-Id: mine\r\n")
            await service.until(service.executor.is_waiting.is_set)
        await service.until(lambda: bool(lines(caplog)))
        assert counted(service) == {(CHAT, "499"): 1}
    (line,) = lines(caplog)
    assert line.startswith(f'127.0.0.1 - "POST {CHAT}" 499 the client left, ')
    assert " s, mine" in line


async def test_a_bug_is_counted_as_500(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as service:

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        service.generator.encode_chat = broken  # type: ignore[method-assign, assignment]
        with pytest.raises(ZeroDivisionError):
            await service.call(CHAT, chat())
        assert counted(service) == {(CHAT, "500"): 1}
    (line,) = lines(caplog)
    assert " 500 internal_error, " in line


@pytest.mark.parametrize(
    ("ids", "shown"), [(["req-1"], "mine req-1"), (["req-1", "req-2", "req-3"], "req-1 and 2 more")]
)
async def test_the_line_joins_the_clients_id_and_our_own(
    ids: list[str], shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        record_of(scope).streams = [SimpleNamespace(request_id=each) for each in ids]  # type: ignore[misc]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    class Counter:
        def on_http_request(self, route: str, status: int) -> None:
            pass

    await call(Access(app, Counter(), (), logs_all=True), "/", headers={"x-request-id": "mine"})
    (line,) = lines(caplog)
    assert line.endswith(shown)
