"""The journal of a life under load replays to the same plans, and a changed plan is found."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest

from headway.core.events import TERMINAL
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId, StepResult
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal, read_journal
from headway.engine.loop import Engine
from headway.engine.records import Apply, Line
from headway.engine.replay import replay
from headway.errors import JournalError
from headway.executors.replay import ReplayExecutor
from headway.executors.simulated import LinearStepCost, SimulatedExecutor

LIMITS = SchedulerLimits(
    num_blocks=30,
    block_size=4,
    max_model_len=96,
    max_num_seqs=6,
    max_num_batched_tokens=24,
    max_queue_requests=8,
)
COST = LinearStepCost(base_s=0.01, prefill_token_s=0.001, decode_s=0.002)


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
    scheduler = Scheduler(LIMITS)
    engine = Engine(scheduler, executor, clock, journal=Journal.create(path, scheduler))
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
    record["plan"]["slices"][0]["count"] += 1
    lines[number] = json.dumps(record).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    difference = replay(read_journal(path)).difference
    assert difference is not None
    assert (difference.line, difference.what) == (number + 1, "slices")


def test_recorded_results_drive_an_engine_to_the_same_end(tmp_path: Path) -> None:
    """The replay executor answers from the journal; the events are those of the first life."""
    path = tmp_path / "life.journal"
    live(path)
    lines = list(read_journal(path))
    results = {
        line.record.result.step_id: line.record.result
        for line in lines
        if isinstance(line.record, Apply)
    }
    executor = ReplayExecutor(results)
    report = replay(lines)
    assert report.difference is None
    scheduler = Scheduler(LIMITS)
    engine = Engine(scheduler, executor, VirtualClock())
    request = Request(
        request_id=RequestId("other"),
        prompt_token_ids=(1, 2),
        sampling=SamplingParams(max_tokens=1),
    )
    engine.submit(request)
    outcome = engine.step()
    assert isinstance(outcome.events[-1], TERMINAL)


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
    path.write_bytes(path.read_bytes().replace(b'"format_version":1', b'"format_version":7'))
    with pytest.raises(JournalError, match="format 7"):
        list(read_journal(path))


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "life.journal"
    path.write_bytes(b"precious")
    with pytest.raises(JournalError, match="exists"):
        Journal.create(path, Scheduler(LIMITS))
    assert path.read_bytes() == b"precious"


def test_records_survive_the_round_trip() -> None:
    stream = io.BytesIO()
    journal = Journal(stream, Scheduler(LIMITS))
    journal.applied(StepResult(3, {}, {}, elapsed_s=0.25), 1.5)
    from headway.engine import records

    lines = [records.decode(raw, 1) for raw in stream.getvalue().splitlines()]
    assert isinstance(lines[0].record, records.Header)
    assert lines[0].record.limits == LIMITS
    assert lines[1] == Line(1, Apply(1.5, StepResult(3, {}, {}, elapsed_s=0.25)))
