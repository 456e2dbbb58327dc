"""Runs what ``docs/advise.md`` shows, and writes the outputs below the commands there.

All of it is simulated, so it prints the same everywhere.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from benchmarks.demonstrations import filled, output_of

_COMMAND = r"```console\n\$ (headway advise (?:.*\\\n)*.*)\n"


def commands(text: str) -> tuple[str, ...]:
    """Return the commands of the document, as they stand there: over several lines."""
    return tuple(re.findall(_COMMAND, text))


def arguments_of(command: str) -> list[str]:
    """Return what the shell would hand to ``headway``."""
    return shlex.split(command.replace("\\\n", ""))[1:]


def _run(command: str) -> str:
    return output_of("-m", "headway", *arguments_of(command))


def main() -> int:
    """Run, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", required=True)
    given = parser.parse_args()
    text = given.write.read_text(encoding="utf-8")
    given.write.write_text(filled(text, commands(text), _run), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
