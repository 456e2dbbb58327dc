"""`docs/plan.md` shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.errors import UsageError
from headway.planning.arithmetic import Arithmetic
from headway.planning.describe import steps

DOCUMENT = (Path(__file__).parents[2] / "docs" / "plan.md").read_text("utf-8")
(WORKLOAD,) = re.findall(r"```toml\n((?s:.*?))```", DOCUMENT)
(CONFIG,) = re.findall(r"```json\n((?s:.*?))```", DOCUMENT)
SHOWN = re.findall(r"```console\n\$ headway (plan (?:.*\\\n)*.*)\n((?s:.*?))```", DOCUMENT)


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mistral-7b"
    folder.mkdir()
    (folder / "workload.toml").write_text(WORKLOAD)
    (folder / "config.json").write_text(CONFIG)
    monkeypatch.chdir(folder)


def shown(start: str) -> tuple[list[str], str]:
    """Return the arguments and the output of the example whose output begins so."""
    ((command, output),) = (each for each in SHOWN if each[1].startswith(start))
    return shlex.split(command.replace("\\\n", "")), output


def test_the_arithmetic_is_what_is_printed_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trials take too long for a test: what would be tried is printed in their place."""

    def untried(found: Arithmetic, *_: object) -> None:
        print("\n".join(steps(found)))
        raise UsageError("nothing is simulated")

    monkeypatch.setattr("headway.planning.plan.make_plan", untried)
    monkeypatch.setattr("headway.planning.trials.Trials", lambda *_, **__: None)
    arguments, output = shown("plan for")
    assert main(arguments) == 2
    expected = output.partition("\n1 ")[2].partition("\n6 ")[0]
    assert capsys.readouterr().out == f"1 {expected}\n"


def test_targets_that_can_not_be_met_are_what_is_printed_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, output = shown("these targets")
    assert main(arguments) == 1
    assert capsys.readouterr().out == output
