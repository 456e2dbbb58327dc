"""The load client against Headway's own server: classes, tenants, cancels, refusals."""

from __future__ import annotations

import asyncio
from math import inf

import pytest
from loopback import END, Service, Setup, let_steps_pass, listening, say_ids

from headway.bench import Options, parse_url
from headway.bench.over_http import HttpSetup, bench_over_http
from headway.config import ClassSettings, ServerSettings
from headway.report import Report
from headway.workload import Stream, WorkloadSpec

TALKATIVE = say_ids([ord("a")])
CLASSES = {"fast": ClassSettings(), "slow": ClassSettings(max_queue_requests=1)}


async def benched(setup: Setup, *streams: Stream, **fields) -> tuple[Report, list[str]]:
    async with listening(setup) as service, asyncio.timeout(60):
        report = await bench_over_http(
            HttpSetup(target=parse_url(service.url), **fields),
            WorkloadSpec(streams=streams),
            Options(),
            {},
            lambda session: None,
        )
        await service.until_idle()
        text = service.metrics.render().decode()
    lines = [line for line in text.splitlines() if line.startswith("headway_requests_total{")]
    return report, [line for line in lines if not line.endswith(" 0.0")]


@pytest.mark.parametrize("fields", [{}, {"endpoint": "chat"}, {"prompt_format": "ids"}])
async def test_both_endpoints_count_as_the_server_does(fields) -> None:
    stream = Stream(request_rate=inf, num_requests=12, prompt_tokens=5, output_tokens=7)
    if fields.get("prompt_format") == "ids":
        fields = {**fields, "extra": {"prompt": [1, 2, 3, 4, 5]}}  # the vocabulary is tiny
    report, _ = await benched(Setup(script=TALKATIVE), stream, **fields)
    assert report.overall.errors == {}
    assert report.overall.num_completed == 12
    assert report.overall.output_tokens == 12 * 7
    assert report.overall.latencies.ttft is not None


async def test_each_request_is_served_in_its_class() -> None:
    streams = (
        Stream(
            class_name="fast", request_rate=inf, num_requests=3, prompt_tokens=5, output_tokens=2
        ),
        Stream(class_name="slow", concurrency=1, num_requests=2, prompt_tokens=5, output_tokens=2),
    )
    for fields in ({}, {"class_header": "X-Class"}):
        settings = ServerSettings(port=0, class_header="X-Class" if fields else None)
        setup = Setup(script=TALKATIVE, classes=CLASSES, settings=settings)
        report, lines = await benched(setup, *streams, **fields)
        assert {name: each.num_completed for name, each in report.classes.items()} == {
            "fast": 3,
            "slow": 2,
        }
        told = sorted((line.split('"')[1], line.split()[-1]) for line in lines)
        assert told == [("fast", "3.0"), ("slow", "2.0")]


async def test_clients_that_leave_are_cancelled_there() -> None:
    stream = Stream(
        request_rate=inf,
        num_requests=6,
        prompt_tokens=5,
        output_tokens=400,
        cancel_share=1.0,
        cancel_after_tokens=2,
    )
    async with listening(Setup(script=TALKATIVE, gated=True)) as service, asyncio.timeout(60):
        pacing = asyncio.create_task(let_steps_pass(service.executor))
        report = await bench_over_http(
            HttpSetup(target=parse_url(service.url)),
            WorkloadSpec(streams=(stream,)),
            Options(),
            {},
            lambda session: None,
        )
        await service.until_idle()
        pacing.cancel()
        await service.until(lambda: service.num_ended("cancelled", "client_disconnected") == 6)
    assert (report.overall.num_cancelled, report.overall.errors) == (6, {})


def num_sent(service: Service) -> float:
    """Requests that came: refused, live, or before the engine's thread, which a gate holds up."""
    refused = service.num_ended("rejected", "queue_full")
    return refused + service.scheduler.statistics().num_live + len(service.engine._inbox)


async def test_a_full_queue_is_told_apart() -> None:
    setup = Setup(script=TALKATIVE, max_queue_requests=1, max_num_seqs=1, gated=True)
    stream = Stream(request_rate=inf, num_requests=6, prompt_tokens=5, output_tokens=2)
    async with listening(setup) as service, asyncio.timeout(60):
        task = asyncio.create_task(
            bench_over_http(
                HttpSetup(target=parse_url(service.url)),
                WorkloadSpec(streams=(stream,)),
                Options(),
                {},
                lambda session: None,
            )
        )
        await service.until(lambda: num_sent(service) == 6)
        service.executor.allow(1_000_000)
        report = await task
    assert report.overall.errors.keys() == {"http 503 queue_full"}
    assert report.overall.num_completed >= 1


async def test_an_answer_may_end_early_where_it_is_let() -> None:
    stream = Stream(request_rate=inf, num_requests=2, prompt_tokens=5, output_tokens=9)
    setup = Setup(script=say_ids([ord("a"), ord("b"), END]), generation_defaults={})
    report, _ = await benched(setup, stream, extra={"stop_token_ids": [END]}, ignore_eos=False)
    assert report.overall.num_completed == 2
    assert report.overall.output_tokens == 6
