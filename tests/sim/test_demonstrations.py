"""`docs/scheduling.md` shows what its commands print."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import chunked_prefill, fairness, priority, sjf, slo
from benchmarks.demonstrations import OF_A_MACHINE, SAME_EVERYWHERE, block, filled

DOCUMENT = Path(__file__).parents[2] / "docs" / "scheduling.md"


@pytest.fixture(scope="module")
def document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("python -m benchmarks.fairness", fairness),
        ("python -m benchmarks.priority", priority),
        ("python -m benchmarks.sjf", sjf),
        ("python -m benchmarks.slo", slo),
        ("python -m benchmarks.chunked_prefill --simulated", chunked_prefill),
    ],
)
def test_an_output_is_what_is_printed_now(
    document: str, request: pytest.FixtureRequest, command: str, module: ModuleType
) -> None:
    name = module.__name__.rpartition(".")[2]
    outcome = request.getfixturevalue(f"{name}_shown")
    assert block(command, module.table(outcome)) in document, "out of date: see its beginning"


def test_every_command_has_an_output(document: str) -> None:
    shown = dict(re.findall(r"```console\n\$ (python [^\n]*)\n(.*?)```", document, re.DOTALL))
    assert {*SAME_EVERYWHERE, *OF_A_MACHINE} <= set(shown)
    assert all(shown[command].strip() for command in (*SAME_EVERYWHERE, *OF_A_MACHINE))


def test_outputs_are_replaced_and_nothing_else_is() -> None:
    text = f"Before.\n\n{block('python -m a', 'old')}\n\n{block('python -m a --b', 'kept')}\n"
    changed = filled(text, ("python -m a",), lambda command: f"new \\1 of {command}\n")
    assert changed == text.replace("old", "new \\1 of python -m a")
    with pytest.raises(ValueError, match="'python -m c' 0 times"):
        filled(text, ("python -m c",), str)
