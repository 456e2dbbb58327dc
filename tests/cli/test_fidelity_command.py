"""``headway fidelity``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli import main as command_line
from headway.engine.journal import Journal
from headway.sim import foreign, simulate
from headway.sim.foreign import FIGURES, SETUPS, ControlVerdict, RunVerdict
from headway.sim.foreign.figures import figures
from headway.sim.foreign.replay import Replayed
from headway.sim.foreign.verdict import compare

main = command_line.main


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Have every run come out with an error, and its control with another, in percent."""

    def pretend(error: float, control: float) -> None:
        def judge(folder: Path, setup: foreign.Setup) -> RunVerdict:
            real = figures([10.0], [0.02], [30.0], 1000.0)
            found = {key: value * (1 + error / 100) for key, value in real.items()}
            wrong = {key: value * (1 + control / 100) for key, value in real.items()}
            bounds = {figure.key: 5.0 for figure in FIGURES}
            rows = compare(found, real, bounds, setup.published)
            worst = compare(wrong, real, bounds, {})[0]
            controls = (ControlVerdict("all wrong", worst),)
            return RunVerdict(setup, rows, Replayed(found, 100, 7), controls)

        monkeypatch.setattr(foreign, "judge", judge)

    return pretend


def foreign_check(tmp_path: Path, *arguments: str) -> int:
    return main(["fidelity", "foreign", "--data", str(tmp_path), *arguments])


def test_within_all_bounds(
    judged: Callable[[float, float], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(-1.04, 20)
    assert foreign_check(tmp_path) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n  figure ") == len(SETUPS)
    line = next(each for each in shown.splitlines() if "tpot_mean" in each)
    assert line.split() == ["tpot_mean", "ms", "20", "19.792", "-1.0", "5", "+0.2"]
    assert "steps beyond the measured kernels: 7 of 100" in shown
    assert "control, all wrong: caught, ttft_mean +20.0 %" in shown
    assert "declared: all-reduce: 16 GB/s and 20 us" in shown


@pytest.mark.parametrize(("error", "control"), [(6, 20), (-6, 20), (1, 4)])
def test_beyond_a_bound_or_with_a_control_that_is_not_caught(
    judged: Callable[[float, float], None],
    error: float,
    control: float,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judged(error, control)
    assert foreign_check(tmp_path, "--run", "rtx4090-8b") == 1
    shown = capsys.readouterr().out
    assert ("BEYOND" in shown) == (abs(error) > 5)
    assert ("NOT CAUGHT" in shown) == (control < 5)


@pytest.mark.parametrize("before", [True, False])
def test_json(
    judged: Callable[[float, float], None],
    before: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judged(2.0, 20)
    arguments = ["foreign", "--data", str(tmp_path), "--run", "pro6000-8b"]
    arguments = ["--json", *arguments] if before else [*arguments, "--json"]
    assert main(["fidelity", *arguments]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["name"], run["holds"]) == ("pro6000-8b", True)
    assert len(run["figures"]) == 13
    assert run["figures"]["ttft_p50"]["error_percent"] == pytest.approx(2)
    assert run["controls"][0]["caught"]


def test_without_the_runs_it_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_TRACES", str(tmp_path))
    assert main(["fidelity", "foreign"]) == 0
    assert capsys.readouterr().out.startswith(f"skipped: no saved runs in {tmp_path}")
    assert main(["fidelity", "foreign", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["runs"] == []
    assert "--data" in answer["skipped"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "CHECK"),
        (["all"], "invalid choice: 'all'"),
        (["foreign", "--data", "none"], "--data: there is no folder none"),
        (["foreign", "--run", "h100"], "no run is called h100: there are rtx4090-8b"),
        (["foreign", "--speed"], "unknown flag --speed"),
        (["parity"], "JOURNAL"),
        (["parity", "none"], "can't read the journal none"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fidelity", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1


def test_parity_is_the_replay_of_a_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "journal"
    write_journal(journal)
    assert main(["fidelity", "parity", str(journal)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("same plans: ")
    assert main(["replay", str(journal)]) == 0
    assert capsys.readouterr().out == shown
    changed = journal.read_text().replace('"slices":[[0,0,10,true]]', '"slices":[[0,0,9,true]]')
    journal.write_text(changed)
    assert main(["fidelity", "parity", str(journal), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["same"] is False


def write_journal(path: Path) -> None:
    from headway.core.config import SchedulerConfig
    from headway.core.costs import StepCosts
    from headway.core.limits import SchedulerLimits
    from headway.core.scheduler import Scheduler
    from headway.workload import Arrival

    limits = SchedulerLimits(
        num_blocks=8, block_size=4, max_model_len=32, max_num_seqs=2, max_num_batched_tokens=16
    )
    config = SchedulerConfig(limits=replace(limits))
    journal = Journal.open(path, Scheduler(config))
    arrivals = [Arrival(at_s=0, prompt_tokens=10, output_tokens=3)]
    simulate(config, arrivals, StepCosts(), journal=journal)
    journal.close()
