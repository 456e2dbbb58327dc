"""Start, drain and end of the server process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable

import pytest
from loopback import CHAT, RawClient, Service, Setup, chat, say

from headway.config.settings import ServerSettings
from headway.errors import UsageError
from headway.server.run import bind, ready_text, serve_async, url_of


def service_for(
    setup: Setup, announce: Callable[[str], None] = lambda _: None
) -> tuple[Service, asyncio.Task[int]]:
    """Start the server as a process would; it starts and stops the engine itself."""
    service = Service(setup)
    listener = bind(service.settings)
    service.port = listener.getsockname()[1]
    service.url = url_of(listener)
    main = serve_async(service.app, service.engine, service.settings, listener, announce)
    return service, asyncio.create_task(main)


async def connect(service: Service) -> RawClient:
    return RawClient(*await asyncio.open_connection("127.0.0.1", service.port))


async def answer_of(client: RawClient) -> tuple[int, bytes]:
    status = await client.status()
    rest = await client.rest()
    await client.vanish()
    return status, rest


CLOSE = "Connection: close\r\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(number: int) -> None:
    settings = ServerSettings(port=0, drain_timeout_s=600)
    service, main = service_for(Setup(script=say("bye"), gated=True, settings=settings))
    running = await connect(service)
    await running.send(CHAT, chat(stream=True), CLOSE)
    await service.until(service.executor.is_waiting.is_set)
    os.kill(os.getpid(), number)
    await service.until(lambda: service.engine.status.state == "draining")
    late = await connect(service)
    await late.send(CHAT, chat(), CLOSE)
    status, rest = await answer_of(late)
    assert status == 503
    assert b"retry-after: 5" in rest.lower()
    assert (await service.call("/readyz", method="GET")).status == 503
    assert (await service.call("/livez", method="GET")).status == 200
    service.executor.allow(100)
    status, rest = await answer_of(running)
    assert status == 200
    assert b"data: [DONE]" in rest
    assert await main == 0
    service.scheduler.check()


async def test_work_that_outlives_the_drain_is_cancelled_and_told() -> None:
    settings = ServerSettings(port=0, drain_timeout_s=0.05)
    service, main = service_for(Setup(script=say("x" * 400), gated=True, settings=settings))
    client = await connect(service)
    await client.send(CHAT, chat(stream=True), CLOSE)
    service.executor.allow(1)
    await service.until_held_after(1)
    os.kill(os.getpid(), signal.SIGTERM)
    await service.until_asked()
    service.executor.allow(1)
    _, rest = await answer_of(client)
    assert b'"code":"cancelled"' in rest
    assert b"data: [DONE]" in rest
    assert await main == 1  # work was cut off
    service.scheduler.check()


async def test_a_second_signal_ends_at_once() -> None:
    settings = ServerSettings(port=0, drain_timeout_s=600)
    service, main = service_for(Setup(script=say("x" * 400), gated=True, settings=settings))
    client = await connect(service)
    await client.send(CHAT, chat(stream=True), CLOSE)
    await service.until(service.executor.is_waiting.is_set)
    os.kill(os.getpid(), signal.SIGTERM)
    await service.until(lambda: service.engine.status.state == "draining")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 1
    await client.vanish()
    service.executor.allow(1_000_000)
    await service.engine.stop(0.0)


async def test_a_failed_engine_ends_the_process_with_code_1() -> None:
    service, main = service_for(Setup(max_num_seqs=1))

    def broken(plan: object) -> None:
        raise RuntimeError("device lost")

    service.executor.run = broken  # type: ignore[method-assign, assignment]
    clients = [await connect(service) for _ in range(4)]
    for client in clients:
        await client.send(CHAT, chat(), CLOSE)
    statuses = {(await answer_of(client))[0] for client in clients}
    assert statuses <= {500, 503}
    assert await main == 1


def test_a_port_in_use_is_a_usage_error() -> None:
    with bind(ServerSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}.*--port"):
            bind(ServerSettings(port=port))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_ours_is_a_usage_error(host: str) -> None:
    with pytest.raises(UsageError, match="can't listen on"):
        bind(ServerSettings(host=host, port=0))


def test_urls() -> None:
    with bind(ServerSettings(host="0.0.0.0", port=0)) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    if socket.has_ipv6:
        try:
            listener = bind(ServerSettings(host="::1", port=0))
        except UsageError:
            pytest.skip("this machine has no IPv6 loopback")
        with listener:
            assert url_of(listener).startswith("http://[::1]:")


async def test_the_url_is_announced_once_requests_are_answered() -> None:
    announced: list[str] = []
    service, main = service_for(Setup(), announced.append)
    await service.until(lambda: bool(announced))
    client = await connect(service)
    await client.send(CHAT, chat(), CLOSE)
    assert (await answer_of(client))[0] == 200
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0
    assert announced == [service.url]
    ready = ready_text(service.url, "tiny")
    assert f"ready at {service.url}" in ready
    assert f"curl {service.url}/v1/chat/completions" in ready
