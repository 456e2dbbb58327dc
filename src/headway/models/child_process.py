"""Runs a child process that does not outlive this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

_POLL_S: Final = 1.0

_TIE_AND_RUN: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):  # it died before the kernel knew of the wish
    sys.exit("the parent process is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Asks Linux to kill this process when its parent's thread ends (prctl(2)), then runs a command.

It is a program of its own because code run between fork and exec is not safe with threads.
"""

Watch: TypeAlias = Callable[[], None]


def run_command(command: Sequence[str], scratch: Path, watch: Watch) -> tuple[int, str]:
    """Run a real process; return its exit status and what it printed.

    An exception here, an interrupt included, ends it. On Linux so does the end of this process by
    whatever signal; elsewhere a process that is killed leaves it to run to its own end.
    """
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with (
        tempfile.TemporaryFile(dir=scratch) as output,
        subprocess.Popen(
            _tied(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        ) as process,
    ):
        try:
            status = _wait(process, watch)
        finally:
            process.kill()
        output.seek(0)
        return status, output.read().decode("utf-8", "replace")


def _tied(command: Sequence[str]) -> list[str]:
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TIE_AND_RUN, str(os.getpid()), *command]


def _wait(process: subprocess.Popen[bytes], watch: Watch) -> int:
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            watch()
