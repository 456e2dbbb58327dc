"""`headway serve` as a process of its own, with the real model and real clients."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

pytest.importorskip("headway.kernels._native", reason="the native kernels are not built")

pytestmark = pytest.mark.slow

MODEL = "smollm2-135m-instruct"
NUM_BLOCKS = 128
QUESTION = [{"role": "user", "content": "What is the capital of Germany?"}]


@dataclass(frozen=True)
class Served:
    url: str
    process: subprocess.Popen[str]
    journal: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def metrics(self) -> str:
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.metrics(), re.MULTILINE)
        assert found, f"{name} is not in /metrics"
        return float(found[1])

    def total(self, name: str, labels: dict[str, str]) -> float:
        """Add up the samples that have these labels, whatever else they have."""
        lines = re.findall(rf"^{name}{{(.*)}} (\S+)$", self.metrics(), re.MULTILINE)
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(value) for found, value in lines if all(w in found for w in wanted))


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    journal = tmp_path_factory.mktemp("served") / "served.journal"
    command = [sys.executable, "-m", "headway", "serve", "--port", "0", "--json"]
    command += ["--num-blocks", str(NUM_BLOCKS), "--max-num-seqs", "2"]
    command += ["--max-num-batched-tokens", "64", "--journal", str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["model"] == MODEL
        yield Served(ready["url"], process, journal)
        process.kill()


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": QUESTION, "temperature": 0, **changes}


def test_the_capital_of_germany(served: Served) -> None:
    status, answer = served.post("/v1/chat/completions", chat())
    assert status == 200
    assert "Berlin" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_the_capital_of_germany_by_the_sdk_streamed(served: Served) -> None:
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client,
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, stream=True
        ) as stream,
    ):
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "Berlin" in "".join(pieces)


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "numbers"),
    [
        (
            "/v1/completions",
            {"model": MODEL, "prompt": [7] * 9000},
            400,
            "context_length_exceeded",
            ("9000",),
        ),
        (
            "/v1/completions",
            {"model": MODEL, "prompt": [7] * 2000, "max_tokens": 1000},
            400,
            "context_length_exceeded",
            ("2000", "1000", str(NUM_BLOCKS * 16 + 1)),
        ),
        ("/v1/chat/completions", b'{"model": ', 400, None, ()),
        ("/v1/chat/completions", chat(model="gpt-9"), 404, "model_not_found", ("gpt-9",)),
    ],
)
def test_what_cannot_be_served_is_refused_and_the_server_goes_on(
    served: Served, path: str, body: Any, status: int, code: str | None, numbers: tuple[str, ...]
) -> None:
    seen, answer = served.post(path, body)
    assert seen == status
    if code is not None:
        assert answer["error"]["code"] == code
    for number in numbers:
        assert number in answer["error"]["message"]
    assert served.post("/v1/chat/completions", chat(max_tokens=1))[0] == 200


def send(served: Served, body: dict[str, Any]) -> socket.socket:
    """Send a request on a raw socket and return it unread."""
    data = json.dumps(body).encode()
    client = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    return client


def until(condition: Callable[[], bool]) -> None:
    """Look again and again; the bound is against hanging, not a measure of speed."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came so far"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["queued", "prefill", "decode"])
def test_a_client_that_vanishes_leaves_no_block_behind(
    served: Served, phase: str, stream: bool
) -> None:
    """B01, B03, B09: the blocks are free after one step, whatever the request was doing."""
    outcome = {"outcome": "cancelled", "reason": "client_disconnected"}
    num_before = served.total("headway_requests_total", outcome)
    endless = {"model": MODEL, "ignore_eos": True, "stream": stream, "temperature": 0}
    num_prompt = 1800 if phase == "prefill" else 4
    body = {**endless, "prompt": [7] * num_prompt, "max_tokens": 240}
    blockers = [
        send(served, {**endless, "prompt": [9], "max_tokens": 400})
        for _ in range(2 if phase == "queued" else 0)
    ]
    until(lambda: served.metric("headway_requests_running") == len(blockers))
    victim = send(served, body)
    if phase == "queued":
        until(lambda: served.metric("headway_requests_waiting") == 1)
    elif phase == "prefill":
        until(lambda: served.metric('headway_kv_blocks{state="used"}') > 0)
    elif stream:
        assert victim.recv(1) == b"H", "the first token is out"
    else:
        until(lambda: served.metric('headway_kv_blocks{state="used"}') >= 2)
    victim.close()
    until(lambda: served.metric("headway_requests_waiting") == 0)
    for blocker in blockers:
        blocker.close()
    until(lambda: served.metric("headway_requests_running") == 0)
    num_cancelled = served.total("headway_requests_total", outcome) - num_before
    assert num_cancelled == 1 + len(blockers), "one ended by itself, so nothing was shown"
    assert served.metric('headway_kv_blocks{state="free"}') == NUM_BLOCKS
    assert served.metric('headway_kv_blocks{state="used"}') == 0


def test_at_the_end_it_drains_and_its_journal_replays(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(60) == 0
    replayed = subprocess.run(
        [sys.executable, "-m", "headway", "replay", str(served.journal)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert replayed.returncode == 0, replayed.stdout
    assert replayed.stdout.startswith("same plans")
