"""The journal: every stimulus of a scheduler and every plan, one JSON object a line.

A journal replays to identical plans, on any machine, because the scheduler is pure. Sizes are
those of the traffic: prompts are in it as token ids, so treat it like the prompts themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headway.core.plan import Idle, RequestId, StepPlan, StepResult
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.engine import records
from headway.errors import JournalError


class Journal:
    """Writes records to a binary stream as they happen."""

    def __init__(self, stream: BinaryIO, scheduler: Scheduler) -> None:
        self._stream = stream
        self._write(
            records.Header(
                records.FORMAT_VERSION, scheduler.limits, type(scheduler.policy).__name__
            )
        )

    @classmethod
    def create(cls, path: Path, scheduler: Scheduler) -> Journal:
        """Start a new file.

        Raises:
            JournalError: the file exists already or can't be written.
        """
        try:
            stream = path.open("xb")
        except OSError as error:
            raise JournalError(f"can't write the journal {path}: {error.strerror}") from error
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
        self._stream.flush()

    def close(self) -> None:
        """Flush and close."""
        self._stream.close()

    def _write(self, record: records.Record) -> None:
        self._stream.write(records.encode(record))


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
        entry = records.decode(line, number)
        if number == 1:
            _check_header(entry.record, path)
        yield entry
    if number == 0:
        raise JournalError(f"{path} is empty, so it is no journal")


def _check_header(record: records.Record, path: Path) -> None:
    if not isinstance(record, records.Header):
        raise JournalError(f"{path} does not begin with a journal header")
    if record.format_version != records.FORMAT_VERSION:
        raise JournalError(
            f"{path} has journal format {record.format_version}; "
            f"this version of Headway reads format {records.FORMAT_VERSION}"
        )
