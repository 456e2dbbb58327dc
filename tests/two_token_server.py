"""A server on the loopback that answers two tokens to everybody, at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHUNK = 'data: {"choices": [{"index": 0, "text": " a", "finish_reason": %s}]}\n\n'
USAGE = 'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n'
ANSWER = CHUNK % "null" + CHUNK % '"length"' + USAGE + "data: [DONE]\n\n"


class TwoTokens(BaseHTTPRequestHandler):
    """Answers two tokens."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_GET(self) -> None:
        self._send(200, "application/json", b'{"data": [{"id": "tiny"}]}')

    def do_POST(self) -> None:
        self.take(self.rfile.read(int(self.headers["content-length"])))
        self._send(self.status, "text/event-stream", ANSWER.encode())

    def take(self, body: bytes) -> None:
        """Called with each request before it is answered."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients that leave are meant to."""


@contextmanager
def serving(handler: type[TwoTokens]) -> Iterator[str]:
    """Yield the URL of a server that answers so."""
    server = _QuietServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
