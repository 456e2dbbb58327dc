"""`docs/plan.md` shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headway.cli.main import main

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


def test_the_arithmetic_is_what_is_printed_now(capsys: pytest.CaptureFixture[str]) -> None:
    """One day in place of forty: the trials take too long for a test."""
    arguments, output = shown("plan for")
    main([*arguments, "--days", "1", "--screening-days", "1"])
    said = capsys.readouterr().out
    before = said.partition("\n6 ")[0]
    assert before == output.partition("\n6 ")[0]


def test_targets_that_can_not_be_met_are_what_is_printed_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, output = shown("these targets")
    assert main(arguments) == 1
    assert capsys.readouterr().out == output
