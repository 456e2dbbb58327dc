"""An engine in a process of its own, which only runs while it is asked something."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.install import PeerError
from benchmarks.peers.places import ROOT
from benchmarks.peers.protocol import Prompts, Timing


class Worker:
    """Starts the process and waits until it is ready; afterwards it is stopped between questions.

    ``start_s`` is the time from the start to ready, and ``about`` what the engine says of itself.

    Raises:
        PeerError: the engine can't be loaded; also if it fails later, or takes too long.
    """

    def __init__(
        self,
        arguments: list[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        timeout_s: float = 900.0,
    ) -> None:
        self._timeout_s = timeout_s
        self._unread = b""
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=ROOT,
                env={**os.environ, **environment},
                start_new_session=True,  # a group of its own: it and its children stop together
            )
        try:
            self.about: dict[str, Any] = self._answer()["ready"]
        except BaseException:
            self.close()
            raise
        self.start_s = self.about.pop("start_s", time.perf_counter() - started)
        self._stop()

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        return Timing(**self._ask({"prompts": prompts, "max_tokens": max_tokens}))

    def score(self, windows: Prompts, path: Path) -> None:
        self._ask({"score": windows, "path": str(path)})

    def close(self) -> None:
        """End the process and its children, whatever they do. Idempotent."""
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # a question that nobody reads any more
                    pipe.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        stdin = self._process.stdin
        assert stdin is not None, "the pipe was asked for"
        self._signal(signal.SIGCONT)
        try:
            stdin.write(json.dumps(question).encode() + b"\n")
            stdin.flush()
            return self._answer()
        except OSError as error:
            raise PeerError(f"the process is gone: {error.strerror}") from error
        finally:
            self._stop()

    def _answer(self) -> dict[str, Any]:
        """Return the next line, an object; raises PeerError for an error and for none in time."""
        deadline = time.monotonic() + self._timeout_s
        while b"\n" not in self._unread:
            self._unread += self._read(deadline - time.monotonic())
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(str(answer["error"]).splitlines()[0][:300])
        return answer

    def _read(self, seconds: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None, "the pipe was asked for"
        ready, _, _ = select.select([stdout], [], [], max(seconds, 0.0))
        if not ready:
            raise PeerError(f"no answer within {self._timeout_s:.0f} s")
        data = os.read(stdout.fileno(), 65536)
        if not data:
            raise PeerError("the process ended without an answer")
        return data

    def _stop(self) -> None:
        """Stop the process, and return when it stands still or has ended."""
        self._signal(signal.SIGSTOP)
        if self._process.returncode is None and hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:  # ended by itself, which the next answer will say
            return
