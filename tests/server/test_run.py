"""Start, drain and end of the server process."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from loopback import CHAT, RawClient, Service, Setup, chat, say

from headway.config.settings import ServerSettings
from headway.engine.aio import MAX_FAILED_STEPS
from headway.errors import UsageError
from headway.server.run import Ending, bind, ready_text, serve_async, url_of


def service_for(
    setup: Setup, announce: Callable[[str], None] = lambda _: None
) -> tuple[Service, asyncio.Task[Ending]]:
    """Start the server as a process would; it starts and stops the engine itself."""
    service = Service(setup)
    listener = bind(service.settings)
    service.port = listener.getsockname()[1]
    service.url = url_of(listener)

    def note(url: str) -> None:
        service.is_announced = True
        announce(url)

    main = serve_async(service.app, service.engine, service.settings, listener, note)
    return service, asyncio.create_task(main)


async def connect(service: Service) -> RawClient:
    await service.until(lambda: service.is_announced)
    return RawClient(*await asyncio.open_connection("127.0.0.1", service.port))


async def answer_of(client: RawClient) -> tuple[int, bytes]:
    status = await client.status()
    rest = await client.rest()
    await client.vanish()
    return status, rest


async def is_dropped(client: RawClient) -> None:
    """Wait for the end of a connection over which nothing comes any more."""
    with suppress(ConnectionError):
        assert await client.rest() == b""
    with suppress(ConnectionError):
        await client.vanish()


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
    assert await main == Ending(0, is_clean=True)
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
    assert await main == Ending(1, is_clean=True)  # work was cut off
    service.scheduler.check()


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.exc_info]


async def test_a_second_signal_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = ServerSettings(port=0, drain_timeout_s=600)
    service, main = service_for(Setup(script=say("x" * 400), gated=True, settings=settings))
    streaming, whole, idle = [await connect(service) for _ in range(3)]
    await streaming.send(CHAT, chat(stream=True), CLOSE)
    await whole.send(CHAT, chat(), CLOSE)
    await service.until(service.executor.is_waiting.is_set)
    os.kill(os.getpid(), signal.SIGTERM)
    await service.until(lambda: service.engine.status.state == "draining")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == Ending(1, is_clean=False)  # the step still hangs
    for client in (streaming, whole, idle):
        await is_dropped(client)
    service.executor.allow(1_000_000)
    await service.engine.stop(0.0)
    assert caplog.text.count("a second signal") == 1
    assert not tracebacks(caplog)


async def test_a_step_that_hangs_keeps_nobody_longer_than_the_drain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("headway.server.supervisor.LAST_STEP_S", 0.05)
    monkeypatch.setattr("headway.server.run.GOODBYE_S", 0)
    settings = ServerSettings(port=0, drain_timeout_s=0.05)
    service, main = service_for(Setup(gated=True, settings=settings))
    client = await connect(service)
    await client.send(CHAT, chat(stream=True), CLOSE)
    await service.until(service.executor.is_waiting.is_set)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == Ending(1, is_clean=False)
    await is_dropped(client)
    service.executor.allow(1_000_000)
    await service.engine.stop(0.0)
    assert "the engine's step does not end" in caplog.text
    assert "499 the server ended before the client had read its answer" in caplog.text
    assert not tracebacks(caplog)


async def test_an_engine_that_can_not_stop_ends_the_process_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service, main = service_for(Setup())
    stop = service.engine.stop

    async def broken(drain_s: float) -> int:
        raise OSError("no space left on the device of the journal")

    service.engine.stop = broken  # type: ignore[method-assign]
    await service.until(lambda: service.is_announced)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == Ending(1, is_clean=True)
    assert "no space left" in caplog.text
    await stop(0.0)


async def test_an_engine_that_fails_while_it_drains_is_no_success() -> None:
    settings = ServerSettings(port=0, drain_timeout_s=600)
    service, main = service_for(Setup(gated=True, settings=settings))
    client = await connect(service)
    await client.send(CHAT, chat(), CLOSE)
    await service.until(service.executor.is_waiting.is_set)
    os.kill(os.getpid(), signal.SIGTERM)
    await service.until(lambda: service.engine.status.state == "draining")

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    service.scheduler.apply = broken  # type: ignore[method-assign, assignment]
    service.executor.allow(1)
    assert (await answer_of(client))[0] == 500
    assert await main == Ending(1, is_clean=True)


PROCESS = """
import asyncio, sys
from loopback import Service, Setup
from headway.config.settings import ServerSettings
from headway.server.run import bind, serve, url_of

settings = ServerSettings(port=0, drain_timeout_s=600)
service = Service(Setup(gated=True, settings=settings))
listener = bind(settings)
code = serve(service.app, service.engine, settings, listener, lambda url: print(url, flush=True))
sys.exit(code)
"""


@pytest.mark.parametrize(("num_signals", "busy", "code"), [(1, False, 0), (2, True, 1)])
def test_the_process_ends_though_a_step_hangs_for_ever(
    num_signals: int, busy: bool, code: int
) -> None:
    command = [sys.executable, "-c", PROCESS]
    here = Path(__file__).parent
    with subprocess.Popen(
        command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.stderr and process.stderr.read()
        if busy:
            port = int(url.rpartition(":")[2])
            asyncio.run(send_and_wait_for_nothing(port, process, num_signals))
        else:
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        assert "Traceback" not in errors


async def send_and_wait_for_nothing(
    port: int, process: subprocess.Popen[str], num_signals: int
) -> None:
    """Give the process work that never ends, and signals until it ends all the same."""
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    probe = RawClient(*await asyncio.open_connection("127.0.0.1", port))
    await client.send(CHAT, chat(), CLOSE)
    await until_it_says(probe, b'"num_running":1')
    for _ in range(num_signals - 1):
        process.send_signal(signal.SIGTERM)
        await until_it_says(probe, b'"state":"draining"')
    process.send_signal(signal.SIGTERM)
    await is_dropped(client)
    await is_dropped(probe)


async def until_it_says(probe: RawClient, words: bytes) -> None:
    """Ask for the health until the answer has these words."""
    body = b""
    while words not in body:
        probe.writer.write(b"GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n")
        head = await probe.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        body = await probe.reader.readexactly(int(length[1]))


async def test_a_failed_engine_ends_the_process_with_code_1() -> None:
    service, main = service_for(Setup(max_num_seqs=1))

    def broken(plan: object) -> None:
        raise RuntimeError("device lost")

    service.executor.run = broken  # type: ignore[method-assign, assignment]
    clients = [await connect(service) for _ in range(MAX_FAILED_STEPS + 1)]
    for client in clients:
        await client.send(CHAT, chat(), CLOSE)
    statuses = {(await answer_of(client))[0] for client in clients}
    assert statuses <= {500, 503}
    assert await main == Ending(1, is_clean=True)


def test_a_port_in_use_is_a_usage_error() -> None:
    with bind(ServerSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}.*--port"):
            bind(ServerSettings(port=port))


async def test_a_port_that_was_taken_since_is_a_usage_error() -> None:
    service = Service(Setup())
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):  # as two servers that find old connections on the port
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        second.bind(first.getsockname())
        first.listen()
        with pytest.raises(UsageError, match="can't listen on"):
            await serve_async(service.app, service.engine, service.settings, second, lambda _: None)


async def test_a_bound_port_refuses_connections_until_the_server_is_ready() -> None:
    with bind(ServerSettings(port=0)) as bound, pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", bound.getsockname()[1])


async def test_connections_of_an_earlier_server_do_not_keep_the_port() -> None:
    service, main = service_for(Setup())
    client = await connect(service)
    await client.send(CHAT, chat(), CLOSE)  # the server closes first, so its side lingers
    assert (await answer_of(client))[0] == 200
    os.kill(os.getpid(), signal.SIGTERM)
    await main
    settings = ServerSettings(port=service.port)
    with bind(settings) as again:
        assert again.getsockname()[1] == service.port


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
    assert await main == Ending(0, is_clean=True)
    assert announced == [service.url]
    ready = ready_text(service.url, "tiny", {"executor": "cpu", "isa": "avx2"})
    assert f"ready at {service.url} (model tiny; executor cpu, isa avx2)\n" in ready
    assert f"curl {service.url}/v1/chat/completions" in ready
