"""Puts each peer into a virtual environment of its own, with the versions that are pinned here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.places import HOME, REQUIREMENTS, ROOT, python_of


class PeerError(Exception):
    """A peer, or a file for it, can't be had; the message is the reason, in a line."""


def install(venv: str, progress: Callable[[str], None]) -> None:
    """Install what ``requirements/VENV.txt`` lists, unless that is done.

    Raises:
        PeerError: it can't be installed.
    """
    requirements = REQUIREMENTS / f"{venv}.txt"
    stamp = HOME / venv / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    progress(f"installing {venv} into {(HOME / venv).relative_to(ROOT)}")
    python = python_of(venv)
    if not python.exists():
        command([sys.executable, "-m", "venv", str(HOME / venv)])
    # --no-deps: the list is complete, so that nothing comes along that it does not name
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    command([str(python), "-m", "pip", "install", *quiet, "--requirement", str(requirements)])
    stamp.write_text(wanted)


def command(arguments: list[str], *, folder: Path = ROOT) -> str:
    """Run a command to its end and return what it printed.

    Raises:
        PeerError: it failed; the message is the last line that says why.
    """
    try:
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeerError(f"{arguments[0]}: {error.strerror}") from error
    if done.returncode:
        raise PeerError(f"{Path(arguments[0]).name}: {_reason(done.stderr or done.stdout)}")
    return done.stdout


def _reason(text: str) -> str:
    """Return the line of a failed command that tells most: the first error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines[-1:] or ["failed without a word"])[0][:300]
