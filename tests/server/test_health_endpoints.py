"""Probes tell the truth; counters come back to zero."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from loopback import CHAT, MODEL, Setup, call, chat, listening, raw_client, running, say

from headway.config import ServerSettings, Settings
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.scheduler import Scheduler
from headway.engine.aio import MAX_FAILED_STEPS
from headway.server.app import create_app


@dataclass(frozen=True)
class Pulse:
    state: str = "running"
    heartbeat_age_s: float = 0.0
    error: str | None = None


class Dummy:
    """An engine that only has a pulse."""

    def __init__(self, pulse: Pulse) -> None:
        self.status = pulse
        limits = SchedulerLimits(
            num_blocks=4, block_size=4, max_model_len=16, max_num_seqs=1, max_num_batched_tokens=4
        )
        self.statistics = Scheduler(SchedulerConfig(limits=limits)).statistics

    def render(self) -> bytes:
        return b""

    def on_http_request(self, route: str, status: int) -> None:
        pass


CASES = [
    (Pulse(), 200, 200, None),
    (Pulse(heartbeat_age_s=49), 200, 200, None),
    (Pulse(heartbeat_age_s=51), 200, 503, "not turned for 51 s"),
    (Pulse(heartbeat_age_s=101), 503, 503, "not turned for 101 s"),
    (Pulse("starting", 1000), 200, 503, "loading"),
    (Pulse("draining"), 200, 503, "stopping"),
    (Pulse("draining", 301), 503, 503, "stopping"),
    (Pulse("stopped", 1000), 200, 503, "stopped"),
    (Pulse("failed", 1, "boom"), 503, 503, "boom"),
]


@pytest.mark.parametrize(("pulse", "live", "ready", "reason"), CASES)
async def test_b53_live_and_ready_are_two_questions(
    pulse: Pulse, live: int, ready: int, reason: str | None
) -> None:
    dummy = Dummy(pulse)
    app = create_app({}, dummy, dummy, Settings(server=ServerSettings(liveness_timeout_s=100)))
    for path, status in (("/livez", live), ("/readyz", ready), ("/health", ready)):
        reply = await call(app, path, method="GET")
        assert reply.status == status
        assert reply.json["state"] == pulse.state
        assert reply.json["status"] == ("ok" if status == 200 else "unavailable")
        if status == 503:
            assert "retry-after" in reply.headers
    if reason:
        assert reason in (await call(app, "/health", method="GET")).json["reason"]


async def test_b53_a_dead_engine_is_seen_at_once_and_clients_are_told() -> None:
    class Broken(Exception):
        pass

    def script(new: Any, position: int) -> int:
        return ord("x")

    async with running(Setup(script=script, gated=True, max_num_seqs=1)) as service:

        def broken(plan: Any) -> Any:
            raise Broken("device lost")

        service.executor.run = broken  # type: ignore[method-assign]
        tasks = [
            asyncio.create_task(service.call(CHAT, chat(stream=True)))
            for _ in range(MAX_FAILED_STEPS + 1)
        ]
        replies = [await task for task in tasks]
        await service.until(lambda: service.engine.status.state == "failed")
        ready = await service.call("/readyz", method="GET")
        live = await service.call("/livez", method="GET")
        late = await service.call(CHAT, chat())
    assert {reply.status for reply in replies} <= {500, 503}
    assert all(reply.error["code"] in ("engine_error", "unavailable") for reply in replies)
    assert (ready.status, live.status) == (503, 503)
    assert late.status == 503
    assert "retry-after" in late.headers


async def test_b53_health_answers_while_the_engine_is_busy() -> None:
    async with running(Setup(gated=True)) as service:
        task = asyncio.create_task(service.call(CHAT, chat()))
        await service.until(service.executor.is_waiting.is_set)
        for path in ("/livez", "/readyz", "/health", "/metrics", "/load", "/v1/models"):
            assert (await service.call(path, method="GET")).status == 200
        load = await service.call("/load", method="GET")
        health = await service.call("/health", method="GET")
        service.executor.allow(100)
        await task
    assert load.json == {"server_load": 1}
    assert health.json["num_running"] == 1
    assert health.json["kv_usage"] > 0


def gauges(text: str) -> dict[str, float]:
    pattern = re.compile(r"^(vllm:\w+|headway_\w+)(?:\{[^}]*\})? ([-+.\deE]+)$", re.MULTILINE)
    return {name: float(value) for name, value in pattern.findall(text)}


async def test_b50_gauges_fall_to_zero_without_new_traffic() -> None:
    async with listening(Setup(script=say("x" * 500), gated=True, max_num_seqs=2)) as service:
        async with AsyncExitStack() as clients:
            for _ in range(10):
                client = await clients.enter_async_context(raw_client(service))
                await client.send(CHAT, chat(stream=True))
            await service.until(service.executor.is_waiting.is_set)
            seen = service.scheduler.statistics().num_live
            await service.until_asked(10 - seen)
            service.executor.allow(2)
            await service.until(lambda: service.scheduler.statistics().num_live == 10)
            busy = gauges((await service.call("/metrics", method="GET")).body.decode())
            await service.until_held_after(2)
        await service.until_asked(10)
        service.executor.allow(1)
        await service.until_idle()
        idle = gauges((await service.call("/metrics", method="GET")).body.decode())
    assert busy["vllm:num_requests_running"] + busy["vllm:num_requests_waiting"] == 10
    assert busy["vllm:kv_cache_usage_perc"] > 0
    assert idle["vllm:num_requests_running"] == 0
    assert idle["vllm:num_requests_waiting"] == 0
    assert idle["vllm:kv_cache_usage_perc"] == 0


async def test_metrics_have_the_content_type_of_prometheus() -> None:
    async with running() as service:
        reply = await service.call("/metrics", method="GET")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert reply.body.endswith(b"\n")


async def test_models_are_listed() -> None:
    async with running() as service:
        listed = (await service.call("/v1/models", method="GET")).json
        one = (await service.call(f"/v1/models/{MODEL}", method="GET")).json
        none = await service.call("/v1/models/org/other", method="GET")
        version = (await service.call("/version", method="GET")).json
    assert listed["object"] == "list"
    assert listed["data"] == [one]
    assert one["id"] == MODEL
    assert one["object"] == "model"
    assert one["owned_by"] == "headway"
    assert one["max_model_len"] == service.setup.context
    assert one["created"] > 1_700_000_000
    assert none.status == 404
    assert none.error["code"] == "model_not_found"
    assert version["version"]
