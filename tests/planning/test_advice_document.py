"""`docs/advise.md` shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headway.cli.main import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "advise.md"
SHOWN = re.findall(
    r"```console\n\$ headway (advise (?:.*\\\n)*.*)\n((?s:.*?))```", DOCUMENT.read_text("utf-8")
)


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_an_output_is_what_is_printed_now(
    capsys: pytest.CaptureFixture[str], command: str, output: str
) -> None:
    assert main(shlex.split(command.replace("\\\n", ""))) == 0
    assert capsys.readouterr().out.strip() == output.strip()


def test_all_six_cases_are_shown() -> None:
    verdicts = {output.partition(":")[0] for _, output in SHOWN}
    assert verdicts == {"giant", "sparse", "real time", "saturated", "equal", "continuous"}
