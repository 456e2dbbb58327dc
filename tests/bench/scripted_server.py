"""A server on the loopback that answers exactly as a test says, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from headway.bench.target import Target

MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 512}]}


@dataclass
class Call:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Script = Callable[[Call, "Reply"], Awaitable[None]]


class Reply:
    """Writes an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def json(self, status: int, value: Any) -> None:
        """Send a whole JSON answer."""
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        await self.raw(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)

    async def begin(self) -> None:
        """Send the head of a stream."""
        await self.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    async def part(self, data: bytes) -> None:
        """Send a part of the body of a stream."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, value: Any) -> None:
        """Send an event."""
        data = value if isinstance(value, str) else json.dumps(value)
        await self.part(f"data: {data}\n\n".encode())

    async def end(self) -> None:
        """End a stream well."""
        await self.raw(b"0\r\n\r\n")

    def drop(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def until_gone(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(ConnectionError):
            while await self._reader.read(1024):
                pass
        self._writer.close()


@dataclass
class Server:
    """What a scripted server saw."""

    target: Target
    calls: list[Call] = field(default_factory=list)
    num_connections: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.target.url


@asynccontextmanager
async def serving(script: Script, models: Any = MODELS) -> AsyncIterator[Server]:
    """Serve the script to all POSTs, and a list of models to GETs."""
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks[task] = writer
        server.num_connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    await answer(reader, Reply(reader, writer))
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def answer(reader: asyncio.StreamReader, reply: Reply) -> None:
        call = await _read(reader)
        if call.method == "GET":
            await reply.json(200, models)
        else:
            server.calls.append(call)
            await script(call, reply)

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    server = Server(Target(host, port))
    try:
        yield server
    finally:
        listener.close()
        for writer in tasks.values():
            writer.transport.abort()
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)


async def _read(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    size = int(headers.get("content-length", 0))
    body = json.loads(await reader.readexactly(size)) if size else None
    return Call(method, path, headers, body)


def text(content: str, finish: str | None = None) -> dict[str, Any]:
    """A chunk of a completion, as vLLM sends it."""
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [{"index": 0, "text": content, "finish_reason": finish, "logprobs": None}],
    }


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a conversation."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    """The last chunk before the end."""
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


async def whole_answer(call: Call, reply: Reply) -> None:
    """Answer as many tokens as were asked for, one a chunk, with usage."""
    count = call.body["max_tokens"]
    await reply.begin()
    for number in range(count):
        await reply.event(text(f" w{number}"))
    await reply.event(text("", "length"))
    await reply.event(usage(7, count))
    await reply.event("[DONE]")
    await reply.end()
