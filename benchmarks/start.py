"""How long ``headway serve`` takes from the command to the first token.

    python -m benchmarks.start [--make] [--runs N] [--json] [-- FLAGS OF HEADWAY SERVE]

Each run is a process of its own. *Ready* is when it says that it listens; *first token* when the
first piece of an answer has been read by a client that asks at that moment. The model must be
there, so the first run, which may fetch it, does not count.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from statistics import median

from benchmarks.command import parser, show
from benchmarks.table import aligned

QUESTION = "What is the capital of France?"


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds since the command, run by run."""

    ready_s: tuple[float, ...]
    first_token_s: tuple[float, ...]

    @property
    def table(self) -> str:
        """Medians, and the whole range."""
        rows = [
            (name, *(f"{number:.2f}" for number in (median(times), min(times), max(times))))
            for name, times in (("ready", self.ready_s), ("first token", self.first_token_s))
        ]
        return aligned(("seconds since the command", "median", "least", "most"), rows)


def start_once(command: list[str]) -> tuple[float, float]:
    """Return the seconds until ready and until the first token."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("{")), "")
        ready = time.perf_counter() - began
        if not line:
            raise SystemExit(f"{' '.join(command)} ended without being ready")
        described = json.loads(line)
        read_first_piece(described["url"], described["model"])
        first = time.perf_counter() - began
        process.send_signal(signal.SIGTERM)
    return ready, first


def read_first_piece(url: str, model: str) -> None:
    """Ask, and return when the first piece of text is there."""
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": model, "messages": messages, "stream": True, "max_tokens": 4}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                choices = json.loads(line[len(b"data: ") :])["choices"]
                if choices and choices[0]["delta"].get("content"):
                    return
    raise SystemExit("the answer has no text")


def main() -> int:
    """Measure, and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--make", action="store_true", help="by `make serve`")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("flags", nargs="*", help="flags of headway serve, after --")
    args = arguments.parse_args()
    flags = ["--port", "0", "--json", *args.flags]
    command = [sys.executable, "-m", "headway", "serve", *flags]
    if args.make:
        command = ["make", "--silent", "serve", f"ARGS={' '.join(flags)}"]
    pairs = [start_once(command) for _ in range(args.runs + 1)][1:]
    starts = Starts(*zip(*pairs, strict=True))
    show(starts, starts.table, as_json=args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
