"""The journal of a life under load replays to the same plans, and a changed plan is found."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, PredictorName, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.events import TokenReady
from headway.core.limits import Batching, PreemptionChoice, SchedulerLimits
from headway.core.plan import (
    BlockMove,
    NewSequence,
    Padding,
    RequestId,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
)
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine import records
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal, read_journal
from headway.engine.loop import Engine
from headway.engine.replay import replay
from headway.errors import JournalError
from headway.executors.replay import ReplayExecutor
from headway.executors.simulated import SimulatedExecutor
from headway.testing.scripted import ScriptedExecutor, repeat

LIMITS = SchedulerLimits(
    num_blocks=30,
    block_size=4,
    max_model_len=96,
    max_num_seqs=6,
    max_num_batched_tokens=24,
    max_queue_requests=8,
)
COST = StepCosts(base_s=0.01, prefill_token_s=0.001, decode_s=0.002)


def live(path: Path, num_requests: int = 60) -> Engine:
    """Run a random load to its end and write its journal to ``path``."""
    chance = random.Random(11)
    clock = VirtualClock()
    executor = SimulatedExecutor(
        COST,
        clock,
        num_blocks=LIMITS.num_blocks,
        block_size=LIMITS.block_size,
        vocab_size=100,
        output_length=lambda new: len(new.prompt_token_ids) % 17 + 1,
    )
    scheduler = Scheduler(SchedulerConfig(limits=LIMITS))
    engine = Engine(scheduler, executor, clock, journal=Journal.open(path, scheduler))
    for number in range(num_requests):
        engine.submit(
            Request(
                request_id=RequestId(f"r{number}"),
                prompt_token_ids=tuple(range(chance.randint(1, 60))),
                sampling=SamplingParams(max_tokens=30, stop_token_ids=(99,), seed=number),
                request_timeout_s=3.0,
            )
        )
        for _ in range(chance.randint(0, 4)):
            engine.step()
        if chance.random() < 0.2:
            engine.cancel(RequestId(f"r{chance.randint(0, number)}"), "gone")
        if chance.random() < 0.1:
            engine.stop(RequestId(f"r{number}"), 0)
    while not engine.step().is_idle:
        scheduler.check()
    engine.close()
    return engine


def test_a_journal_replays_to_the_same_plans(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    engine = live(path)
    report = replay(read_journal(path))
    assert report.difference is None
    assert report.num_plans > 100
    assert engine.scheduler.statistics().num_preemptions > 0


def test_a_different_plan_is_found_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    live(path)
    lines = path.read_bytes().splitlines(keepends=True)
    numbers = [i for i, line in enumerate(lines) if b'"kind":"plan"' in line]
    number = numbers[len(numbers) // 2]
    record = json.loads(lines[number])
    record["plan"]["slices"][0][2] += 1
    lines[number] = json.dumps(record).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    difference = replay(read_journal(path)).difference
    assert difference is not None
    assert (difference.line, difference.what) == (number + 1, "slices")


def test_recorded_results_drive_an_engine_to_the_same_end(tmp_path: Path) -> None:
    """The replay executor stands in for the one that was recorded, and nobody notices."""
    path = tmp_path / "life.journal"
    first = live(path)
    lines = [line.record for line in read_journal(path)]
    results = {r.result.step_id: r.result for r in lines if isinstance(r, records.Apply)}
    clock = VirtualClock()
    engine = Engine(Scheduler(SchedulerConfig(limits=LIMITS)), ReplayExecutor(results), clock)
    for record in lines[1:]:
        clock.sleep_until(record.now)
        match record:
            case records.Submit():
                engine.submit(record.request)
            case records.Cancel():
                engine.cancel(record.request_id, record.reason)
            case records.Stop():
                engine.stop(record.request_id, record.index)
            case records.Schedule():
                assert engine.step().error is None
    assert engine.scheduler.statistics() == first.scheduler.statistics()


def test_a_torn_last_line_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    live(path)
    path.write_bytes(path.read_bytes()[:-20])
    assert replay(read_journal(path)).difference is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n", "line 1"),
        (b'{"type":"cancel","now":1,"request_id":"a","reason":"b"}\n', "header"),
        (b'{"type":"header","format_version":9}\n', "line 1"),
    ],
)
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "no.journal"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=message):
        replay(read_journal(path))


def test_another_format_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new.journal"
    live(path, num_requests=1)
    path.write_bytes(path.read_bytes().replace(b'"format_version":2', b'"format_version":7'))
    with pytest.raises(JournalError, match=r"new.journal.* format 7.* format 2"):
        list(read_journal(path))


def test_a_journal_of_an_older_version_is_refused_by_its_number(tmp_path: Path) -> None:
    """Its first line has other fields, so it can't be read as one of today's."""
    path = tmp_path / "old.journal"
    header = b'{"type":"header","format_version":1,"limits":{"num_blocks":1},"policy":"x"}\n'
    path.write_bytes(header)
    with pytest.raises(JournalError, match=r"old.journal.* format 1.* format 2"):
        list(read_journal(path))
    with pytest.raises(JournalError, match=r"old.journal.* format 1"):
        Journal.open(path, Scheduler(SchedulerConfig(limits=LIMITS)))
    assert path.read_bytes() == header


def test_what_is_no_journal_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_bytes(b"precious")
    with pytest.raises(JournalError, match="line 1"):
        Journal.open(path, Scheduler(SchedulerConfig(limits=LIMITS)))
    assert path.read_bytes() == b"precious"


def test_each_start_adds_a_section_and_all_are_replayed(tmp_path: Path) -> None:
    """A supervised server that starts anew goes on with its journal, even after a crash."""
    path = tmp_path / "life.journal"
    live(path)
    once = replay(read_journal(path))
    with path.open("ab") as stream:
        stream.write(b'{"type":"cancel","now"')
    live(path)
    twice = replay(read_journal(path))
    assert twice.difference is None
    assert twice.num_plans == 2 * once.num_plans


def test_a_new_journal_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    live(path, num_requests=1)
    assert path.stat().st_mode & 0o077 == 0


class FullDisk(io.BytesIO):
    def write(self, data: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_ends_the_journal_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(SchedulerConfig(limits=LIMITS))
    clock = VirtualClock()
    executor = ScriptedExecutor(repeat([1]))
    engine = Engine(scheduler, executor, clock, journal=Journal(FullDisk(), scheduler))
    engine.submit(request("a", 3))
    while not engine.step().is_idle:
        scheduler.check()
    engine.close()
    assert scheduler.statistics().num_finished == 1
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def request(name: str, num_prompt: int, **sampling: Any) -> Request:
    n = sampling.pop("n", 1)
    return Request(
        request_id=RequestId(name),
        prompt_token_ids=tuple(range(num_prompt)),
        sampling=SamplingParams(**{"max_tokens": 6, **sampling}),
        n=n,
    )


def fail_sometimes(new: NewSequence, position: int) -> int:
    if new.sequence_id % 5 == 3 and position == 2:
        raise ValueError("spoilt \u2603")
    return position


def test_several_sequences_failures_scores_and_stops_replay_too(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    scheduler = Scheduler(SchedulerConfig(limits=LIMITS))
    executor = ScriptedExecutor(fail_sometimes)
    engine = Engine(scheduler, executor, VirtualClock(), journal=Journal.open(path, scheduler))
    for number in range(12):
        engine.submit(request(f"r{number}", 9, n=number % 3 + 1, logprobs=2, prompt_logprobs=1))
        if number == 5:
            executor.fail_next_step = RuntimeError("the whole step")
        engine.step()
        engine.stop(RequestId(f"r{number}"), number % 3)
    while not engine.step().is_idle:
        scheduler.check()
    engine.close()
    seen = scheduler.statistics()
    assert seen.num_failed > 1
    assert seen.num_finished > 1
    report = replay(read_journal(path))
    assert report.difference is None
    assert report.num_plans == seen.num_steps


def test_two_plans_in_flight_replay_too(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    scheduler = Scheduler(SchedulerConfig(limits=replace(LIMITS, max_plans_in_flight=2)))
    executor = ScriptedExecutor(repeat([1]))
    journal = Journal.open(path, scheduler)
    for number in range(4):
        journal.submitted(request(f"r{number}", 5), 0.0)
        scheduler.submit(request(f"r{number}", 5), 0.0)
    plans: list[StepPlan] = []
    now = 0.0
    while scheduler.statistics().num_live:
        now += 1.0
        if len(plans) < 2 and isinstance(plan := scheduler.schedule(now), StepPlan):
            journal.scheduled(plan, now)
            plans.append(plan)
        if len(plans) == 2 or scheduler.statistics().num_steps > 5:
            result = executor.run(plans.pop(0))
            journal.applied(result, now)
            scheduler.apply(result, now)
    journal.close()
    assert replay(read_journal(path)).difference is None


def test_records_survive_the_round_trip() -> None:
    stream = io.BytesIO()
    journal = Journal(stream, Scheduler(SchedulerConfig(limits=LIMITS)))
    journal.applied(StepResult(3, {}, {}, elapsed_s=0.25), 1.5)
    lines = [records.decode(raw, 1) for raw in stream.getvalue().splitlines()]
    assert isinstance(lines[0].record, records.Header)
    assert lines[0].record == records.Header(2, SchedulerConfig(limits=LIMITS))
    assert lines[1] == records.Line(1, records.Apply(1.5, StepResult(3, {}, {}, elapsed_s=0.25)))


EVERYTHING = SchedulerConfig(
    limits=replace(
        LIMITS,
        enable_prefix_sharing=True,
        num_swap_blocks=12,
        preemption_mode=PreemptionChoice.AUTO,
        max_waiting_time_s=0.02,
        max_queue_requests=None,
    ),
    policy=PolicyConfig(
        name=PolicyName.FAIR,
        predictor=PredictorName.HINT,
        priority_threshold=None,
        tenant_weights=(("a", 2.0), ("b", 1)),
    ),
    classes=(
        ServiceClass(name="chat", weight=3, ttft_target_s=0.5, max_output_tokens=8),
        ServiceClass(name="batch", policy=PolicyName.SJF, best_effort=True),
        ServiceClass(name="live", reserved_slots=1, reserved_blocks=4),
    ),
    costs=StepCosts(base_s=0.01, prefill_token_s=0.001, decode_s=0.002, swap_block_s=1e-4),
)


@pytest.mark.parametrize("batching", [Batching.CONTINUOUS, Batching.DYNAMIC])
def test_classes_tenants_swap_and_sharing_are_in_a_journal(
    tmp_path: Path, batching: Batching
) -> None:
    """Every field of the configuration counts when a journal is replayed."""
    config = replace(EVERYTHING, limits=replace(EVERYTHING.limits, batching=batching))
    path = tmp_path / "all.journal"
    clock, chance = VirtualClock(), random.Random(5)
    scheduler = Scheduler(config)
    executor = SimulatedExecutor(
        COST, clock, num_blocks=30, block_size=4, num_swap_blocks=12, vocab_size=100
    )
    engine = Engine(scheduler, executor, clock, journal=Journal.open(path, scheduler))
    for number in range(80):
        engine.submit(
            replace(
                request(f"r{number}", chance.randint(1, 40), max_tokens=chance.randint(1, 30)),
                class_name=chance.choice(["chat", "chat", "batch", "live"]),
                tenant=chance.choice(["a", "b", ""]),
                cache_salt=chance.choice(["", "s"]),
                expected_output_tokens=chance.choice([None, 5]),
            )
        )
        for _ in range(chance.randint(0, 3)):
            engine.step()
    while not engine.step().is_idle:
        scheduler.check()
    engine.close()
    statistics = scheduler.statistics()
    assert statistics.num_preemptions > 0
    assert statistics.num_cached_tokens > 0
    header = next(read_journal(path)).record
    assert header == records.Header(records.FORMAT_VERSION, config)
    assert replay(read_journal(path)).difference is None


def test_a_journal_names_the_fields_of_events_and_padding() -> None:
    plan = StepPlan(
        4,
        (Slice(SequenceId(1), 2, 3, True),),
        swap_out=(BlockMove(5, 6),),
        padding=Padding(2, 3, 8),
        events=(TokenReady(RequestId("r"), 0, SampledToken(9)),),
    )
    record = json.loads(records.plan_bytes(plan))
    assert record["slices"] == [[1, 2, 3, True]]
    assert record["swap_out"] == [[5, 6]]
    assert record["padding"] == {"num_sequences": 2, "num_rows": 3, "length": 8}
    (event,) = record["events"]
    assert (event["event"], event["request_id"]) == ("TokenReady", "r")
    assert event["token"]["token_id"] == 9
