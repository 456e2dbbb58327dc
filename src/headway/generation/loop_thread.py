"""An event loop for programs that have none: on a thread of its own, called from any other."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from headway.errors import EngineStoppedError

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_CLOSED = "this LLM is closed"


#: those that may still run, for the exit of the program
_THREADS: weakref.WeakSet[LoopThread] = weakref.WeakSet()


class LoopThread:
    """Runs coroutines for other threads, which wait for the results, until it is ended.

    Args:
        start: called on the loop before anything else.
        stop: awaited on the loop at the end, when all calls are cancelled.

    Guards: every call returns, or raises EngineStoppedError at the end; none waits for ever.
    """

    def __init__(self, start: Callable[[], None], stop: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self._stop = stop
        self._lock = threading.Lock()
        self._is_ending = False  # once this is set under the lock, no call comes any more
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._end = asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headway-llm", daemon=True)
        self._thread.start()
        _THREADS.add(self)
        self._loop = self._ready.result()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return its result; who is interrupted cancels it.

        Raises:
            EngineStoppedError: the end came first.
        """
        with self._lock:
            if self._is_ending:
                work.close()
                raise EngineStoppedError(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise EngineStoppedError(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def post(self, callback: Callable[[], None]) -> None:
        """Have something done on the loop, unless that has ended; for destructors: never waits."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed, and all that was on it has ended
            return

    def end(self) -> None:
        """Begin the end, without waiting for it. Idempotent; for destructors, so without a lock."""
        self._is_ending = True
        self.post(self._end.set)

    def close(self) -> None:
        """Cancel all calls, stop, and wait until the thread is over. Idempotent, from any thread.

        Raises:
            Exception: what ``stop`` raised, once; the thread is over all the same.
        """
        self.end()
        self.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def join(self) -> None:
        """Wait until the thread is over."""
        self._thread.join()

    def _run(self) -> None:
        try:
            # its own pool: at the exit of the program, asyncio could not end the common one
            with ThreadPoolExecutor(thread_name_prefix="headway-text") as pool:
                self._run_loop(pool)
        except BaseException as error:  # noqa: BLE001 - whoever waits for this thread is told
            self._fail(error)

    def _run_loop(self, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.new_event_loop()
        loop.set_default_executor(pool)
        try:
            loop.run_until_complete(self._main())
        finally:
            loop.run_until_complete(_cancel_others())
            loop.close()

    def _fail(self, error: BaseException) -> None:
        if self._ready.done():
            _log.error("the engine did not end well", exc_info=error)
            self._error = error
        else:
            self._ready.set_exception(error)

    async def _main(self) -> None:
        self._start()
        self._ready.set_result(asyncio.get_running_loop())
        try:
            await self._end.wait()
        finally:
            with self._lock:
                self._is_ending = True
            await asyncio.sleep(0)  # a call that came just before becomes a task
            await _cancel_others()
            await self._stop()


async def _cancel_others() -> None:
    """Cancel every other task of the loop, so that whoever waits for one need not wait longer."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@atexit.register
def _end_all() -> None:
    """Wait for what nobody has closed: native code dies badly if the program goes from under it."""
    threads = list(_THREADS)
    for thread in threads:
        thread.end()
    for thread in threads:
        thread.join()
