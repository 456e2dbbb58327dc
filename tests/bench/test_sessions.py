"""Whole load tests against a scripted server: warm-up, ramp, doubts, report."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from scripted_server import Call, Reply, Script, serving, whole_answer

from headway.bench import Options, Session, attains
from headway.bench.health import Health
from headway.bench.over_http import HttpSetup, bench_over_http
from headway.bench.session import at_total_rate
from headway.report import Outcome, Report, figures, report_on
from headway.workload import Stream, Targets, WorkloadError, WorkloadSpec


def spec(count: int = 20, **fields) -> WorkloadSpec:
    stream = Stream(request_rate=float("inf"), num_requests=count, output_tokens=3)
    return WorkloadSpec(streams=(stream,), **fields)


async def benched(
    script: Script, workload: WorkloadSpec, on_session=lambda session: None, **options
) -> tuple[Report, list[Call]]:
    async with serving(script) as server, asyncio.timeout(60):
        setup = HttpSetup(target=server.target)
        report = await bench_over_http(setup, workload, Options(**options), {"seed": 1}, on_session)
    return report, server.calls


async def test_a_whole_load_test() -> None:
    report, calls = await benched(whole_answer, spec(targets={"default": Targets(ttft_s=60.0)}))
    assert report.overall.num_completed == len(calls) == 20
    assert report.overall.attained == 1.0
    assert report.facts["model_id"] == "tiny"
    assert report.facts["num_prompts"] == 20
    assert report.title.startswith("tiny at http://127.0.0.1:")
    assert attains(report, 1.0)


async def test_a_warm_up_does_not_count_and_says_other_things() -> None:
    report, calls = await benched(whole_answer, spec(5), warmup=3)
    assert report.overall.num_requests == 5
    assert len(calls) == 8
    assert len({call.body["prompt"] for call in calls}) == 8


async def test_refusals_are_counted_by_kind() -> None:
    async def script(call: Call, reply: Reply) -> None:
        await reply.json(503, {"error": {"code": "queue_full", "message": "full"}})

    report, _ = await benched(script, spec(5, targets={"default": Targets(ttft_s=1.0)}))
    assert report.overall.errors == {"http 503 queue_full": 5}
    assert not attains(report, 0.1)


async def test_a_stopped_one_reports_what_there_is() -> None:
    sessions: list[Session] = []

    async def script(call: Call, reply: Reply) -> None:
        if call.body["max_tokens"] == 4:
            sessions[0].stop()
            await reply.until_gone()
        else:
            await whole_answer(call, reply)

    patient = Stream(request_rate=100.0, process="constant", num_requests=5, output_tokens=3)
    fatal = Stream(request_rate=1.0, process="constant", num_requests=99, output_tokens=4)
    both = WorkloadSpec(streams=(patient, fatal))
    report, _ = await benched(script, both, sessions.append)
    assert sessions[0].was_stopped
    assert report.warnings[0].startswith("stopped before its end")
    counts = [each.outcome for each in report.records]
    assert counts.count(Outcome.UNFINISHED) >= 1
    assert counts.count(Outcome.COMPLETED) + counts.count(Outcome.UNFINISHED) == len(counts)


async def test_requests_longer_than_the_context_are_said() -> None:
    stream = Stream(request_rate=float("inf"), num_requests=3, prompt_tokens=600, output_tokens=3)
    report, _ = await benched(whole_answer, WorkloadSpec(streams=(stream,)))
    assert any("3 of 3 requests are longer" in each for each in report.warnings)


async def test_a_ramp_reports_its_steps_with_prompts_of_their_own() -> None:
    served = 0

    async def script(call: Call, reply: Reply) -> None:
        nonlocal served
        served += 1
        if served > 30:  # beyond that it refuses everything
            await reply.json(503, {"error": {"code": "queue_full", "message": "full"}})
        else:
            await whole_answer(call, reply)

    stream = Stream(request_rate=1.0, process="constant", num_requests=10, output_tokens=3)
    workload = WorkloadSpec(streams=(stream,))
    report, calls = await benched(script, workload, ramp=(500.0, 4.0))
    assert len(report.ramp) >= 3
    assert len({call.body["prompt"] for call in calls}) == len(calls)
    assert report.knee is not None
    assert report.facts["request_rate"] == report.knee
    assert report.overall.num_completed == 10


def test_a_total_rate_keeps_the_proportions() -> None:
    two = WorkloadSpec(
        streams=(
            Stream(request_rate=1.0, num_requests=1),
            Stream(request_rate=3.0, num_requests=1),
        )
    )
    assert [each.request_rate for each in at_total_rate(two, 8.0).streams] == [2.0, 6.0]
    closed = replace(two, streams=(Stream(concurrency=1, num_requests=1),))
    with pytest.raises(WorkloadError, match="needs a finite request_rate"):
        at_total_rate(closed, 8.0)


def test_a_bad_client_is_said() -> None:
    from headway.report import Record

    records = [Record(due_s=0.0, sent_s=0.5) for _ in range(10)]
    latencies = figures(records, 1.0, {}).latencies
    doubts = list(Health(p99_lag_s=0.5, busy=0.99).doubts(latencies))
    assert [each.split(",")[0].split(":")[0][:23] for each in doubts] == [
        "the client sent late",
        "the client was busy 99%",
        "the client woke up late",
    ]
    fine = figures([Record(due_s=0.0, sent_s=0.001)], 1.0, {}).latencies
    assert list(Health(0.001, 0.2).doubts(fine)) == []


def test_a_share_is_required_of_each_class_that_was_promised_something() -> None:
    from array import array

    from headway.report import Record

    def done(name: str, ttft_s: float) -> Record:
        return Record(
            due_s=0.0,
            class_name=name,
            token_times=array("d", [ttft_s]),
            ended_s=ttft_s,
            outcome=Outcome.COMPLETED,
        )

    records = [done("fast", 0.1), done("fast", 9.0), done("slow", 99.0)]
    report = report_on(
        records, 1.0, {"fast": Targets(ttft_s=1.0)}, title="", kind="bench", facts={}
    )
    assert attains(report, 0.5)
    assert not attains(report, 0.6)
