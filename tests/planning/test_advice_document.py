"""`docs/advise.md` shows what its commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.advice import arguments_of, commands
from benchmarks.demonstrations import block

from headway.cli.main import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "advise.md").read_text(encoding="utf-8")
COMMANDS = commands(TEXT)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_is_what_is_printed_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments_of(command)) == 0
    assert block(command, capsys.readouterr().out) in TEXT, "out of date: see its beginning"


def test_every_command_is_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ headway advise ", TEXT, re.MULTILINE))
    assert all(f"```console\n$ {command}\n" in TEXT for command in COMMANDS)


def test_all_cases_are_shown() -> None:
    shown = [TEXT.partition(f"```console\n$ {command}\n")[2] for command in COMMANDS]
    verdicts = [output.partition(":")[0] for output in shown]
    first = {"giant", "sparse", "real time", "saturated", "equal", "continuous"}
    assert set(verdicts) == first | {"scale", "isolate", "share"}
