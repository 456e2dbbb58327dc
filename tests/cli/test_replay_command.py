"""``headway replay``: what it prints, as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal
from headway.engine.loop import Engine
from headway.testing.scripted import ScriptedExecutor, repeat


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "life.journal"
    scheduler = Scheduler(
        SchedulerConfig(
            limits=SchedulerLimits(
                num_blocks=8,
                block_size=4,
                max_model_len=32,
                max_num_seqs=2,
                max_num_batched_tokens=8,
            )
        )
    )
    engine = Engine(
        scheduler,
        ScriptedExecutor(repeat([1])),
        VirtualClock(),
        journal=Journal.open(path, scheduler),
    )
    for name in ("a", "b"):
        sampling = SamplingParams(max_tokens=3)
        engine.submit(
            Request(request_id=RequestId(name), prompt_token_ids=(1, 2, 3), sampling=sampling)
        )
    while not engine.step().is_idle:
        pass
    engine.close()
    return path


@pytest.fixture
def changed(journal: Path) -> Path:
    text = journal.read_text()
    assert "[0,0,3,true]" in text
    journal.write_text(text.replace("[0,0,3,true]", "[0,0,2,true]", 1))
    return journal


def test_same_plans(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(journal)]) == 0
    assert capsys.readouterr().out == "same plans: 3 plans after 9 stimuli\n"


def test_same_plans_as_json(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(journal), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {"same": True, "num_plans": 3, "num_stimuli": 9, "difference": None}


def test_the_first_difference(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(changed)]) == 1
    title, recorded, replayed = capsys.readouterr().out.splitlines()
    assert title == "first difference at journal line 4: slices"
    assert "[0, 0, 2, true]" in recorded
    assert "[0, 0, 3, true]" in replayed


def test_the_first_difference_as_json(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(changed), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["same"] is False
    assert (report["difference"]["line"], report["difference"]["what"]) == (4, "slices")


@pytest.mark.parametrize("name", ["missing.journal", "."])
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith("headway: error: can't read the journal")
