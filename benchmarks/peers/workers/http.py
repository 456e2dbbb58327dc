"""An HTTP server with the completions API of OpenAI, and streaming clients on the same machine.

``options``: ``command`` (how to start it, with ``{port}``, and ``{programs}`` for the folder that
is an option too), and ``extra`` (fields of each request). Server and clients share the cores, as
they do for whoever tries this at home.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from benchmarks.peers.protocol import Prompts, Timing, serve

_HOST = "127.0.0.1"


class HttpEngine:
    def __init__(self, options: dict[str, Any]) -> None:
        self._port = free_port()
        self._extra = options["extra"]
        self._loop = asyncio.Runner()
        names = {"port": self._port, "programs": options.get("programs")}
        command = [part.format(**names) for part in options["command"]]
        started = time.perf_counter()
        self._server = subprocess.Popen(command, stdout=2)
        wait_until_ready(self._port, self._server)
        self.about = {"start_s": time.perf_counter() - started}

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        return self._loop.run(self._all(prompts, max_tokens))

    def score(self, windows: Prompts, path: str) -> None:
        raise NotImplementedError("the same engine as without HTTP, which is scored")

    async def _all(self, prompts: Prompts, max_tokens: int) -> Timing:
        bodies = [self._body(prompt, max_tokens) for prompt in prompts]
        started = time.perf_counter()
        outcomes = await asyncio.gather(*(self._one(body) for body in bodies))
        seconds = time.perf_counter() - started
        firsts, counts = zip(*outcomes, strict=True)
        return Timing(seconds, max(firsts) - started, sum(counts))

    def _body(self, prompt: list[int], max_tokens: int) -> bytes:
        fields = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra,
        }
        body = json.dumps(fields).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {_HOST}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _one(self, request: bytes) -> tuple[float, int]:
        """Return when the first piece came, and how many tokens the server counted."""
        reader, writer = await asyncio.open_connection(_HOST, self._port, limit=2**20)
        try:
            writer.write(request)
            status = await reader.readline()
            if b" 200 " not in status:
                text = (await reader.read())[-300:].decode(errors="replace")
                raise RuntimeError(f"{status.decode().strip()}: {text}")
            return await _events(reader)
        finally:
            writer.close()


async def _events(reader: asyncio.StreamReader) -> tuple[float, int]:
    """Read server-sent events; each is a line, and lines of HTTP's chunks lie between them."""
    first, last_usage = 0.0, b""
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        first = first or time.perf_counter()
        if b'"completion_tokens"' in line:
            last_usage = line
    usage = json.loads(last_usage.removeprefix(b"data: "))["usage"]
    return first, int(usage["completion_tokens"])


def free_port() -> int:
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port: int = free.getsockname()[1]
        return port


def wait_until_ready(port: int, server: subprocess.Popen[Any]) -> None:
    """Ask for its health until it is well; raises RuntimeError if it ends before."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{port}/health", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.005)
    raise RuntimeError("the server ended before it was ready")


if __name__ == "__main__":
    serve(HttpEngine)
