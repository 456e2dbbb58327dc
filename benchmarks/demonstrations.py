"""Runs what ``docs/scheduling.md`` shows, and writes the outputs below the commands there.

Only what runs in virtual time is run, since that prints the same everywhere; ``--all`` runs the
others too, which takes many minutes and depends on the machine.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SAME_EVERYWHERE = (
    "python -m benchmarks.fairness",
    "python -m benchmarks.priority",
    "python -m benchmarks.sjf",
    "python -m benchmarks.slo",
    "python -m benchmarks.chunked_prefill --simulated",
)
OF_A_MACHINE = (
    "python -m benchmarks.chunked_prefill",
    "python -m benchmarks.scheduler --cpu-time",
)
_ROOT = Path(__file__).parents[1]


def block(command: str, output: str) -> str:
    """Return how a command and its output stand in the document."""
    return f"```console\n$ {command}\n{output.strip()}\n```"


def filled(text: str, commands: tuple[str, ...], run: Callable[[str], str]) -> str:
    """Return the document with the outputs of these commands."""
    for command in commands:
        text = _replaced(text, command, block(command, run(command)))
    return text


def _replaced(text: str, command: str, fresh: str) -> str:
    pattern = rf"```console\n\$ {re.escape(command)}\n.*?```"
    text, count = re.subn(pattern, lambda _: fresh, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the document has {command!r} {count} times")
    return text


def output_of(*words: str) -> str:
    """Return what Python prints with these arguments, in the root of the checkout."""
    print(*words, file=sys.stderr, flush=True)
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _run(command: str) -> str:
    return output_of(*shlex.split(command)[1:])


def main() -> int:
    """Run, and write."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("--write", type=Path, metavar="FILE", required=True)
    arguments.add_argument("--all", action="store_true", help="also what depends on the machine")
    given = arguments.parse_args()
    commands = SAME_EVERYWHERE + (OF_A_MACHINE if given.all else ())
    text = given.write.read_text(encoding="utf-8")
    given.write.write_text(filled(text, commands, _run), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
