"""The journal: every stimulus of a scheduler and every plan, one JSON object a line.

A journal replays to identical plans, on any machine, because the scheduler is pure. Sizes are
those of the traffic: prompts are in it as token ids, so treat it like the prompts themselves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from headway.core.plan import Idle, RequestId, StepPlan, StepResult
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine import records
from headway.errors import JournalError

_log = logging.getLogger(__name__)


class Journal:
    """Writes records to a binary stream as they happen.

    Recording never harms serving: if writing fails, that is logged once and recording ends.
    """

    def __init__(self, stream: BinaryIO, scheduler: Scheduler) -> None:
        self._stream: BinaryIO | None = stream
        self._write(records.Header(records.FORMAT_VERSION, scheduler.config))

    @classmethod
    def open(cls, path: Path, scheduler: Scheduler) -> Journal:
        """Begin a new section at the end of a file; make the file if there is none.

        Each start of an engine adds a section of its own. The last line of a section that a crash
        has torn is dropped. Only the owner can read a new file, since prompts are in it.

        Raises:
            JournalError: the file can't be written, or it exists and is no journal.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError(f"can't write the journal {path}: {error.strerror}") from error
        stream = os.fdopen(descriptor, "r+b")
        try:
            _go_to_end(stream, path)
        except BaseException:
            stream.close()
            raise
        return cls(stream, scheduler)

    def submitted(self, request: Request, now: float) -> None:
        """Write a submission."""
        self._write(records.Submit(now, request))

    def cancelled(self, request_id: RequestId, now: float, reason: str) -> None:
        """Write a cancellation."""
        self._write(records.Cancel(now, request_id, reason))

    def stopped(self, request_id: RequestId, index: int, now: float) -> None:
        """Write that a stop string was found."""
        self._write(records.Stop(now, request_id, index))

    def scheduled(self, plan: StepPlan | Idle, now: float) -> None:
        """Write a plan."""
        self._write(records.Schedule(now, records.plan_record(plan)))

    def applied(self, result: StepResult, now: float) -> None:
        """Write a step result."""
        self._write(records.Apply(now, result))

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if self._stream is not None:
            self._try(self._stream.flush)

    def close(self) -> None:
        """Flush and close. Idempotent."""
        if self._stream is not None:
            self._try(self._stream.close)
            self._stream = None

    def _write(self, record: records.Record) -> None:
        if self._stream is not None:
            stream = self._stream
            self._try(lambda: stream.write(records.encode(record)))

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, ValueError) as error:  # a full disk; text that is no Unicode
            self._stream = None
            _log.error("the journal ends here, since it can't be written: %s", error)


def _go_to_end(stream: BinaryIO, path: Path) -> None:
    """Stand behind the last whole line of a journal."""
    if stream.seek(0, os.SEEK_END) == 0:
        return
    stream.seek(0)
    _check_header(_decode(stream.readline(), 1, path).record, path)
    stream.seek(0)
    end = 0
    for line in stream:
        if line.endswith(b"\n"):
            end += len(line)
    stream.seek(end)
    stream.truncate()


def read_journal(path: Path) -> Iterator[records.Line]:
    """Yield the records of a journal, the header first.

    A last line without a newline is the trace of a crash; what is before it is still good.

    Raises:
        JournalError: the file can't be read, or is no journal of this version.
    """
    try:
        with path.open("rb") as stream:
            yield from _read_lines(stream, path)
    except OSError as error:
        raise JournalError(f"can't read the journal {path}: {error.strerror}") from error


def _read_lines(stream: BinaryIO, path: Path) -> Iterator[records.Line]:
    number = 0
    for number, line in enumerate(stream, start=1):
        if not line.endswith(b"\n"):
            break
        entry = _decode(line, number, path)
        if number == 1:
            _check_header(entry.record, path)
        yield entry
    if number == 0:
        raise JournalError(f"{path} is empty, so it is no journal")


def _decode(line: bytes, number: int, path: Path) -> records.Line:
    try:
        return records.decode(line, number)
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from error


def _check_header(record: records.Record, path: Path) -> None:
    if not isinstance(record, records.Header):
        raise JournalError(f"{path} does not begin with a journal header")
