"""The async front: an event loop on one side, the engine's thread on the other.

All calls of the engine happen on its thread, in the order in which they were asked for. Between
two steps the thread serves its inbox, so a submission or cancellation waits for one step at most.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from headway.core.events import Admitted, Event, Failed, Rejected, RejectReason
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.statistics import Statistics
from headway.engine.loop import Engine
from headway.engine.stream import RequestStream
from headway.errors import EngineStoppedError, RequestError

_log = logging.getLogger(__name__)

EngineState = Literal["starting", "running", "draining", "stopped", "failed"]

#: an idle engine looks up this often, so that its heartbeat stays fresh
_IDLE_WAIT_S = 1.0

#: this many steps in a row that fail as a whole mean that the executor is broken
MAX_FAILED_STEPS = 8

#: what comes of a submission
_ANSWERS = (Admitted, Rejected)

_STATUS = {RejectReason.QUEUE_FULL: 503, RejectReason.RESERVED_FULL: 429}


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Whether the engine lives. ``heartbeat_age_s`` is the time since its loop last turned."""

    state: EngineState
    heartbeat_age_s: float
    error: str | None


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one request may ask for."""

    max_model_len: int
    num_kv_tokens: int
    max_num_seqs: int


class AsyncEngine:
    """Runs an :class:`Engine` on a thread of its own and streams events to asyncio.

    Guards: every request that was submitted gets exactly one terminal event, also when the engine
    stops or breaks.
    """

    def __init__(self, engine: Engine, *, max_buffered_events: int = 1024) -> None:
        self._engine = engine
        self._max_buffered_events = max_buffered_events
        self._state: EngineState = "starting"
        self._error: str | None = None
        self._heartbeat = engine.clock.now()
        self._thread = threading.Thread(target=self._run, name="headway-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        # shared by both sides
        self._wake = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        # the event loop's
        self._streams: dict[RequestId, RequestStream] = {}
        self._answers: dict[RequestId, asyncio.Future[Admitted | Rejected]] = {}
        self._all_ended = asyncio.Event()
        self._is_over = asyncio.Event()
        # the engine thread's
        self._outbox: list[Event] = []
        self._num_failed_steps = 0
        limits = engine.scheduler.config.limits
        self.limits = EngineLimits(limits.max_model_len, limits.num_kv_tokens, limits.max_num_seqs)

    # ---------------------------------------------------------------- event loop's side

    def start(self) -> None:
        """Start the engine's thread; events go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._state = "running"
        self._thread.start()

    async def submit(self, request: Request) -> RequestStream:
        """Queue a request and return its stream, once it is admitted.

        Raises:
            RequestError: the scheduler refuses it; ``code`` and the message say why.
            EngineStoppedError: the engine takes no work.
        """
        self._require_running()
        request_id = request.request_id
        if request_id in self._streams:
            raise RequestError(
                f"A request with id {request_id} is live.", code=RejectReason.DUPLICATE.value
            )
        max_events = self._max_buffered_events * request.n
        stream = RequestStream(request_id, max_events, self._ask_cancel, self._ask_stop)
        answer: asyncio.Future[Admitted | Rejected] = asyncio.get_running_loop().create_future()
        self._streams[request_id] = stream
        self._answers[request_id] = answer
        self._ask(partial(self._submit, request))
        try:
            verdict = await answer
        except asyncio.CancelledError:
            stream.cancel("abandoned")  # whoever waited here is gone
            raise
        finally:
            self._answers.pop(request_id, None)
        if isinstance(verdict, Rejected):
            raise _refusal(verdict)
        stream.clamped_max_tokens = verdict.clamped_max_tokens
        return stream

    def begin_drain(self) -> None:
        """Take no more work from now on; what is queued or runs goes on."""
        if self._state == "running":
            self._state = "draining"

    async def stop(self, drain_s: float = 0.0) -> int:
        """Take no more work, let live requests finish for ``drain_s`` seconds, cancel the rest.

        Returns how many were cancelled.
        """
        if self._state == "starting":
            self._state = "stopped"
            self._engine.close()
            return 0
        self.begin_drain()
        await self._wait_until_all_ended(drain_s)
        cut_off = list(self._streams.values())
        for stream in cut_off:
            stream.cancel("server_shutdown")
        self._ask(self._shut_down)
        await self._is_over.wait()
        self._engine.close()
        return len(cut_off)

    def statistics(self) -> Statistics:
        """Return a snapshot of the scheduler's counts; safe from any thread."""
        return self._engine.scheduler.statistics()

    @property
    def status(self) -> EngineStatus:
        """Whether the engine lives; safe from any thread."""
        age = max(self._engine.clock.now() - self._heartbeat, 0.0)
        return EngineStatus(self._state, age, self._error)

    def _require_running(self) -> None:
        if self._state == "failed":
            raise EngineStoppedError(f"the engine has failed: {self._error}")
        if self._state != "running":
            raise EngineStoppedError(f"the engine is {self._state}")

    async def _wait_until_all_ended(self, timeout_s: float) -> None:
        if not self._streams or timeout_s <= 0:
            return
        self._all_ended.clear()
        try:
            await asyncio.wait_for(self._all_ended.wait(), timeout_s)
        except TimeoutError:
            _log.info(
                "after %g s of draining, requests still live: %d", timeout_s, len(self._streams)
            )

    def _ask_cancel(self, request_id: RequestId, reason: str) -> None:
        self._ask(lambda: self._outbox.extend(self._engine.cancel(request_id, reason)))

    def _ask_stop(self, request_id: RequestId, index: int) -> None:
        self._ask(lambda: self._outbox.extend(self._engine.stop(request_id, index)))

    def _ask(self, command: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(command)
            self._wake.notify()

    def _deliver(self, events: list[Event]) -> None:
        """Hand events to whoever waits for them."""
        for event in events:
            if isinstance(event, _ANSWERS):
                answer = self._answers.get(event.request_id)
                if answer is not None and not answer.done():
                    answer.set_result(event)
            self._deliver_to_stream(event)
        if not self._streams:
            self._all_ended.set()

    def _deliver_to_stream(self, event: Event) -> None:
        stream = self._streams.get(event.request_id)
        if stream is None:
            return
        stream.put(event)
        if stream.has_ended:
            del self._streams[event.request_id]

    def _end_all(self, message: str) -> None:
        """The engine's thread is over: whoever still waits is told so."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineStoppedError(message))
        self._deliver([Failed(request_id, message) for request_id in self._streams])
        self._is_over.set()

    # ---------------------------------------------------------------- engine thread's side

    def _run(self) -> None:
        message = "the engine has stopped"
        try:
            while self._is_on():
                self._turn()
        except Exception as error:  # noqa: BLE001 - waiting clients must be told, whatever broke
            _log.exception("the engine has failed")
            self._error = message = f"{type(error).__name__}: {error}"
            self._state = "failed"
        finally:
            self._flush()
            self._call_loop(partial(self._end_all, message))

    def _turn(self) -> None:
        self._heartbeat = self._engine.clock.now()
        if self._inbox:
            self._serve_inbox()
            if not self._is_on():
                return
        outcome = self._engine.step()
        self._outbox.extend(outcome.events)
        self._flush()
        if outcome.is_idle:
            self._wait(outcome.wake_at)
            return
        self._num_failed_steps = self._num_failed_steps + 1 if outcome.error else 0
        if self._num_failed_steps >= MAX_FAILED_STEPS:
            raise EngineStoppedError(f"{MAX_FAILED_STEPS} steps in a row failed: {outcome.error}")

    def _is_on(self) -> bool:
        return self._state in ("running", "draining")

    def _serve_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()
        self._flush()  # whoever asked shall not wait for the step as well

    def _wait(self, wake_at: float | None) -> None:
        timeout = _IDLE_WAIT_S
        if wake_at is not None:
            timeout = min(timeout, max(wake_at - self._engine.clock.now(), 0.0))
        with self._wake:
            if not self._inbox:
                self._wake.wait(timeout)

    def _submit(self, request: Request) -> None:
        self._outbox.append(self._engine.submit(request))

    def _shut_down(self) -> None:
        self._state = "stopped"

    def _flush(self) -> None:
        if self._outbox:
            events, self._outbox = self._outbox, []
            self._call_loop(partial(self._deliver, events))

    def _call_loop(self, callback: Callable[[], None]) -> None:
        assert self._loop is not None, "the thread runs only after start()"
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            _log.warning("the event loop closed before the engine; its last events are lost")


def _refusal(rejected: Rejected) -> RequestError:
    return RequestError(
        rejected.message,
        code=rejected.reason.value,
        status=_STATUS.get(rejected.reason, 400),
        retry_after_s=rejected.retry_after_s,
    )
