"""``headway calibrate`` and ``headway fidelity own``, with a simulated executor for the engine."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from headway.assembly import Bare
from headway.cli import calibrate, own
from headway.cli.commands import Command
from headway.cli.main import main
from headway.cli.parser import CommandParser
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.fitted import FittedCosts
from headway.profiles.profile import read_profile
from headway.profiles.shape import StepShape
from headway.sim import simulate
from headway.workload import Arrival

COSTS = StepCosts(base_s=0.004, prefill_token_s=0.0002, decode_s=0.0006)
LIMITS = SchedulerLimits(
    num_blocks=2000, block_size=16, max_model_len=1024, max_num_seqs=16, max_num_batched_tokens=512
)
CONFIG = SchedulerConfig(limits=LIMITS)


def bare(clock: VirtualClock, costs: StepCosts = COSTS) -> Bare:
    executor = SimulatedExecutor(costs, clock, num_blocks=2000, block_size=16, vocab_size=100)
    return Bare(name="stand-in", executor=executor, config=CONFIG, vocab_size=100)


def test_it_measures_what_is_loaded() -> None:
    clock = VirtualClock()
    found = calibrate.calibrate_bare(bare(clock), clock, "here", most_s=30.0, longest=500)
    assert isinstance(found.profile.device, FittedCosts)
    assert found.profile.device.costs_s["decodes"] == pytest.approx(0.0006, rel=0.01)
    assert found.profile.name == "here"


def test_a_journal_of_serving_makes_a_profile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    journal = tmp_path / "j.journal"
    arrivals = [
        Arrival(at_s=0.3 * n, prompt_tokens=20 + 30 * (n % 7), output_tokens=5 + n)
        for n in range(20)
    ]
    with closing(Journal.open(journal, Scheduler(CONFIG))) as writing:
        simulate(CONFIG, arrivals, COSTS, journal=writing)
    output = tmp_path / "profile.json"
    assert (
        main(["calibrate", "--from-journal", str(journal), "--output", str(output), "--json"]) == 0
    )
    said = json.loads(capsys.readouterr().out)
    device = read_profile(output).device
    assert isinstance(device, FittedCosts)
    assert device.costs_s["prefill_tokens"] == pytest.approx(0.0002, rel=0.05)
    assert said["num_steps"] > 50
    assert main(["calibrate", "--from-journal", str(journal), "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "a decoding sequence" in shown
    assert "held out: half below" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--most-s", "0"), "--most-s must be above 0"),
        (("--from-journal", "nowhere"), "can't read the journal nowhere"),
    ],
)
def test_refusals_of_calibrate(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["calibrate", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--duration-s", "0"), "--duration-s must be above 0"),
        (("--repetitions", "0"), "--repetitions must be at least 1"),
        (("--share", "1.5"), "--share lies between 0 and 1"),
    ],
)
def test_refusals_of_own(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["fidelity", "own", *arguments]) == 2
    assert said in capsys.readouterr().err


def judged(*arguments: str, clock: VirtualClock, loaded: Bare) -> int:
    parser = CommandParser(Command("own", "", "judge"))
    own.configure(parser)
    args = parser.read(
        ["--repetitions", "2", "--duration-s", "30", "--calibrate-s", "20", *arguments]
    )
    return own.judge_and_report(args, loaded, clock)


def test_own_passes_where_the_engine_is_as_calibrated(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    assert judged("--json", clock=clock, loaded=bare(clock)) == 0
    loads = json.loads(capsys.readouterr().out)["loads"]
    assert [each["share"] for each in loads] == [0.5, 0.9]
    figures = loads[0]["figures"]
    assert len(figures["ttft_p99"]["real"]) == 2
    assert all(abs(each["error_percent"]) < 1 for each in figures.values())


def test_own_fails_where_costs_are_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    class Uneven(StepCosts):
        """Every second step takes ten times as long: nothing that is told of a step says so."""

        steps = count()

        def seconds(self, step: StepShape) -> float:
            return super().seconds(step) * (10 if next(self.steps) % 2 else 1)

    clock = VirtualClock()
    assert judged("--share", "0.6", clock=clock, loaded=bare(clock, Uneven())) == 1
    assert "BEYOND" in capsys.readouterr().out


def test_own_holds_where_the_machine_becomes_slower_meanwhile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Slowing(StepCosts):
        """Slower by the second."""

        def seconds(self, step: StepShape) -> float:
            return super().seconds(step) * (1 + clock.now() / 600)

    clock = VirtualClock()
    judged("--share", "0.5", "--json", clock=clock, loaded=bare(clock, Slowing()))
    figures = json.loads(capsys.readouterr().out)["loads"][0]["figures"]
    assert abs(figures["tpot_p50"]["error_percent"]) < 5


def test_where_nothing_can_be_written_is_said_before_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    absent = tmp_path / "absent" / "profile.json"
    assert main(["calibrate", "--output", str(absent)]) == 2
    assert f"there is no folder {absent.parent}" in capsys.readouterr().err
