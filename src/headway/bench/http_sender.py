"""Sends requests over HTTP and writes down what came, and when."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf

from headway.bench.connection import Connection
from headway.bench.errors import ExchangeError
from headway.bench.job import Job, Now, Send
from headway.bench.pool import Pool
from headway.bench.sse import EventReader
from headway.bench.wire import Chunk, Dialect, Usage, read_chunk, refusal
from headway.report import Outcome, Record
from headway.workload import Conduct, Content

_WELL = Conduct()
_MAX_REFUSAL_BYTES = 1 << 16


class HttpSender:
    """A :class:`headway.bench.job.Sender` for OpenAI-compatible servers.

    Attributes:
        num_uncounted: answers whose tokens the server didn't count, so that pieces were counted.

    Args:
        pool: connections to the server.
        dialect: how requests are written.
        content: what they say.
        timeout_s: how long a request may take, from when it is sent.
    """

    def __init__(self, pool: Pool, dialect: Dialect, content: Content, timeout_s: float) -> None:
        self._pool = pool
        self._dialect = dialect
        self._content = content
        self._timeout_s = timeout_s
        self.num_uncounted = 0

    def prepare(self, job: Job) -> Send:
        """Write the request down."""
        request = self._dialect.request(job.name, job.arrival, self._content)
        return partial(self._send, job, request)

    async def _send(self, job: Job, request: bytes, now: Now) -> None:
        record, conduct = job.record, job.arrival.conduct or _WELL
        answer = StreamedAnswer(record, conduct)
        leaves_at_s = record.due_s + (conduct.leaves_after_s or inf)
        record.sent_s = began_s = now()
        limit_s = min(leaves_at_s - began_s, self._timeout_s)
        try:
            async with asyncio.timeout(None if limit_s == inf else max(limit_s, 0.0)):
                await self._exchange(request, answer, now, conduct)
            answer.close()
            self._count(record, answer.usage)
        except TimeoutError:
            self._give_up(record, conduct, leaves_at_s, now())
        except _Left:
            record.outcome, record.ended_s = Outcome.CANCELLED, now()
        except ExchangeError as error:
            _fail(record, error, now())

    async def _exchange(
        self, request: bytes, answer: StreamedAnswer, now: Now, conduct: Conduct
    ) -> None:
        if not conduct.stalls:
            await self._pool.exchange(request, answer, now)
            return
        connection = await self._pool.open(now, small_buffer=True)
        answer.connection = connection
        await self._pool.over(connection, request, answer, now, keep=False)

    def _count(self, record: Record, usage: Usage | None) -> None:
        record.outcome = Outcome.COMPLETED
        if usage is None:
            self.num_uncounted += 1
            return
        record.input_tokens = usage.prompt_tokens or record.input_tokens
        record.output_tokens = usage.completion_tokens
        if usage.prompt_tokens_details is not None:
            record.num_cached_tokens = usage.prompt_tokens_details.cached_tokens

    def _give_up(self, record: Record, conduct: Conduct, leaves_at_s: float, at_s: float) -> None:
        record.ended_s = at_s
        if conduct.leaves_after_s is not None and at_s >= leaves_at_s - 1e-3:
            record.outcome = Outcome.CANCELLED
        else:
            record.outcome, record.error = Outcome.FAILED, "timeout"
            record.detail = f"no end after {self._timeout_s:g} s"


class _Left(ExchangeError):
    """The client went away on purpose."""

    def __init__(self) -> None:
        super().__init__("left")


class StreamedAnswer:
    """Takes the answer to one request and writes it into its record."""

    def __init__(self, record: Record, conduct: Conduct) -> None:
        self._record = record
        self._conduct = conduct
        self._events = EventReader()
        self._status = 0
        self._is_stream = False
        self._refused = bytearray()
        self._has_finished = False
        self.usage: Usage | None = None
        self.connection: Connection | None = None

    def on_head(self, status: int, headers: dict[str, str], /) -> None:
        """Look whether this is a stream."""
        self._status = status
        self._is_stream = headers.get("content-type", "").startswith("text/event-stream")

    def on_body(self, data: bytes, now: float, /) -> None:
        """Read the events of a part of the stream, which all came now."""
        if self._status != 200 or not self._is_stream:
            self._refused += data[: _MAX_REFUSAL_BYTES - len(self._refused)]
            return
        for event in self._events.feed(data):
            if event != b"[DONE]":
                self._take(read_chunk(event), now)

    def close(self) -> None:
        """See whether the answer, which has ended, is whole.

        Raises:
            ExchangeError: it isn't, or the request was refused.
        """
        if self._status != 200:
            raise refusal(self._status, bytes(self._refused))
        if not self._is_stream:
            raise ExchangeError("bad answer", f"no stream of events: {bytes(self._refused[:80])!r}")
        if not self._has_finished:
            raise ExchangeError("cut off", "the stream ended without a reason of its end")

    def _take(self, chunk: Chunk, now: float) -> None:
        record = self._record
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            is_end = choice.finish_reason is not None
            self._has_finished |= is_end
            # an answer of nothing but its end has one token too
            if choice.has_output or (is_end and not record.token_times):
                record.token_times.append(now)
                record.output_tokens += 1
            if choice.has_output or is_end:
                record.ended_s = now
        if chunk.choices:
            self._behave()

    def _behave(self) -> None:
        conduct, count = self._conduct, self._record.output_tokens
        if conduct.leaves_after_tokens is not None and count >= conduct.leaves_after_tokens:
            raise _Left
        if (
            self.connection is not None
            and conduct.stalls_within(count)
            and not self._record.stalled
        ):
            self._record.stalled = True
            self.connection.pause(conduct.stalls_for_s)


def _fail(record: Record, error: ExchangeError, at_s: float) -> None:
    record.outcome, record.ended_s = Outcome.FAILED, at_s
    record.error, record.detail = error.kind, error.detail
