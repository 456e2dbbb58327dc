"""Sends single requests by the load client, for tests."""

from __future__ import annotations

import asyncio
from typing import Any

from scripted_server import Server

from headway.bench.http_sender import HttpSender
from headway.bench.job import Job
from headway.bench.pool import Pool
from headway.bench.target import resolve
from headway.bench.wire import Dialect
from headway.report import Record
from headway.workload import Arrival, Conduct, Content, Prompt


def an_arrival(
    output_tokens: int = 3,
    *,
    conduct: Conduct | None = None,
    prompt: Prompt | None = None,
    **fields: Any,
) -> Arrival:
    """A request that is due at once."""
    return Arrival(
        at_s=0.0,
        prompt_tokens=5,
        output_tokens=output_tokens,
        max_tokens=output_tokens,
        conduct=conduct,
        prompt=prompt,
        **fields,
    )


class Client:
    """A sender with its pool."""

    def __init__(self, pool: Pool, sender: HttpSender) -> None:
        self.pool = pool
        self.sender = sender

    async def send(self, arrival: Arrival, name: str = "0") -> Record:
        """Send one request and return its record."""
        stalled = arrival.conduct is not None and arrival.conduct.stalls
        record = Record(due_s=arrival.at_s, input_tokens=arrival.prompt_tokens, stalled=stalled)
        ticks = iter(range(1, 1_000_000))
        async with asyncio.timeout(30):
            # each look at this clock is a second later: order without time
            await self.sender.prepare(Job(name, arrival, record))(lambda: float(next(ticks)))
        return record


async def client_of(server: Server, *, timeout_s: float = float("inf"), **dialect: Any) -> Client:
    """Return a client of a server."""
    fields: dict[str, Any] = {
        "target": server.target,
        "model": "tiny",
        "endpoint": "completions",
        "prompt_format": "text",
        "ignore_eos": True,
    }
    pool = Pool(await resolve(server.target))
    sender = HttpSender(pool, Dialect(**{**fields, **dialect}), Content(1), timeout_s)
    return Client(pool, sender)
