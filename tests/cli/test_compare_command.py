"""``headway compare``: modes from flags, what it refuses, and what it prints."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from headway.assembly import Bare
from headway.cli import comparing
from headway.cli.main import main
from headway.config import Settings
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.plan import StepPlan, StepResult
from headway.engine.clock import VirtualClock
from headway.executors.simulated import SimulatedExecutor

COSTS = StepCosts(base_s=0.004, prefill_token_s=0.0001, decode_s=0.0002)
LIMITS = SchedulerLimits(
    num_blocks=2000, block_size=16, max_model_len=1024, max_num_seqs=32, max_num_batched_tokens=1024
)
MODES = ["none", "static-8", "static-32", "dynamic-8", "dynamic-32", "continuous"]


class Interrupting:
    """An executor at which somebody presses Ctrl-C in a step."""

    def __init__(self, inner: SimulatedExecutor) -> None:
        self.in_step = 0
        self._inner = inner
        self._num_steps = 0

    def run(self, plan: StepPlan) -> StepResult:
        self._num_steps += 1
        if self._num_steps == self.in_step:
            signal.raise_signal(signal.SIGINT)
        return self._inner.run(plan)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Interrupting:
    """Stand in for the model, on a virtual clock."""
    clock = VirtualClock()
    inner = SimulatedExecutor(COSTS, clock, num_blocks=2000, block_size=16, vocab_size=4000)
    made = Interrupting(inner)

    def bare(settings: Settings, progress: object) -> Bare:
        config = SchedulerConfig(limits=LIMITS)
        return Bare(name="stand-in", executor=made, config=config, vocab_size=4000)

    monkeypatch.setattr(comparing, "assemble_bare", bare)
    monkeypatch.setattr(comparing, "RealClock", lambda: clock)
    return made


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["compare", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["compare", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.usefixtures("executor")
def test_all_modes_get_the_same_work(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys)
    assert list(found["modes"]) == MODES
    assert found["num_requests"] == 128
    assert {each["completed"] for each in found["modes"].values()} == {128}
    static, continuous = found["modes"]["static-32"], found["modes"]["continuous"]
    assert continuous["output_throughput"] > 1.5 * static["output_throughput"]
    assert continuous["ms_per_token"] < static["ms_per_token"]
    assert continuous["num_slots"] == static["num_slots"] == 32
    assert found["warnings"] == []


@pytest.mark.usefixtures("executor")
def test_chosen_modes_and_repetitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    found = compared(
        capsys, "--modes", "continuous,none", "--repetitions", "2", "--num-requests", "9",
        "--max-num-seqs", "5", "--csv", str(file),
    )  # fmt: skip
    assert list(found["modes"]) == ["none", "continuous"]
    assert found["modes"]["continuous"]["num_slots"] == 5
    runs = found["modes"]["none"]["runs"]
    assert len(runs) == 2
    assert runs[0]["output_throughput"] == pytest.approx(runs[1]["output_throughput"])
    assert len(list(csv.reader(file.read_text().splitlines()))) == 5


@pytest.mark.usefixtures("executor")
def test_targets_are_judged_for_each_mode(capsys: pytest.CaptureFixture[str]) -> None:
    modes = compared(capsys, "--goodput", "ttft:3000")["modes"]
    assert modes["none"]["attained"] < modes["continuous"]["attained"]


def test_ctrl_c_reports_the_modes_that_were_finished(
    executor: Interrupting, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", "--json", "--modes", "none", "--num-requests", "8"])
    num_steps = json.loads(capsys.readouterr().out)["modes"]["none"]["runs"][0]["num_steps"]
    executor._num_steps, executor.in_step = 0, num_steps + 30
    before = signal.getsignal(signal.SIGINT)
    arguments = ["compare", "--json", "--modes", "none,static-8", "--num-requests", "8"]
    assert main(arguments) == 130
    assert list(json.loads(capsys.readouterr().out)["modes"]) == ["none"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_7b_model_on_an_a100(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = compared(capsys, "--simulated", "--html", str(page))
    assert found["model_id"] == "a 7B model on a100-80gb"
    modes = found["modes"]
    assert modes["static-32"]["stated"] == {"output_throughput": 200, "ms_per_token": 160}
    assert modes["continuous"]["output_throughput"] > 2 * modes["static-32"]["output_throughput"]
    assert modes["continuous"]["ms_per_token"] < modes["static-32"]["ms_per_token"]
    assert all("% reading weights" in each["note"] for each in modes.values())
    assert "reading weights" in page.read_text()


def test_figures_of_an_a100_are_not_held_against_another_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fewer_bits = ("--weights", "int8", "--num-requests", "9")
    found = compared(capsys, "--simulated", "--device", "l4", *fewer_bits)
    assert found["model_id"] == "a 7B model on l4"
    assert "stated" not in found["modes"]["none"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--modes", "none,static-9"], "there is no 'static-9'; known: none, static-8"),
        (["--repetitions", "0"], "--repetitions must be at least 1"),
        (["--simulated", "--repetitions", "2"], "a simulation gives the same each time"),
        (["--device", "l4"], "--device says what is simulated: it goes with --simulated"),
        (["--batching", "static"], "--batching"),
        (["--concurrency", "8"], "in a closed loop each mode would get its requests"),
        (["--cancel-share", "0.5", "--cancel-after-s", "1"], "clients that go away"),
        (["--stall-share", "0.01", "--num-requests", "1"], "clients that go away"),
        (["--class", "other"], "the settings have no class other, but default"),
        (["--duration-s", "1"], "request_rate inf would make more than 10,000,000 requests"),
        (["--simulated", "--swap-space-bytes", "1e9"], "--swap-space-bytes"),
        (["--max-num-batched-tokens", "16", "--max-num-seqs", "8"], "mode static-32: "),
    ],
)
def test_what_contradicts_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    told = refusal(capsys, *arguments)
    assert said in told
    assert told.count("\n") == 1


def test_a_mode_that_a_setting_contradicts_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    swapped = ["--simulated", "--swap-space-bytes", "1000000000"]
    told = refusal(capsys, *swapped)
    assert "mode none: " in told
    assert "--modes" in told
    found = compared(capsys, *swapped, "--modes", "dynamic-8,continuous", "--num-requests", "5")
    assert list(found["modes"]) == ["dynamic-8", "continuous"]


def test_a_file_that_chooses_the_batching_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "static.toml"
    file.write_text('[scheduler]\nbatching = "static"\n')
    told = refusal(capsys, "--config", str(file))
    assert "is what the modes differ in" in told
    assert "static.toml" in told


@pytest.mark.usefixtures("executor")
def test_a_request_beyond_the_context_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the longest request has 2064 tokens" in refusal(
        capsys, "--prompt-tokens", "2000", "--output-tokens", "64"
    )


def test_requests_of_an_unknown_class_are_refused_in_each_mode_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("at_s,prompt_tokens,output_tokens,class\n0,10,5,other\n")
    arguments = ["--simulated", "--modes", "continuous", "--source", "csv", "--path", str(path)]
    assert main(["compare", *arguments]) == 1
    told = capsys.readouterr().out
    assert "continuous: nothing was computed; rejected invalid_request: There is no class" in told
