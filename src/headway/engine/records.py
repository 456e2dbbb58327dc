"""Core values as JSON and back: the lines of a journal.

Every stimulus is an object whose first key names it; a plan is written with its events, so two
plan logs can be compared byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headway.core.config import SchedulerConfig
from headway.core.events import Event, TokenReady
from headway.core.plan import Idle, RequestId, StepPlan, StepResult
from headway.core.request import Request
from headway.errors import JournalError

FORMAT_VERSION = 2


class Header(msgspec.Struct, tag="header", frozen=True, forbid_unknown_fields=True):
    """First line: what is needed to build the same scheduler."""

    format_version: int
    config: SchedulerConfig


class Submit(msgspec.Struct, tag="submit", frozen=True, forbid_unknown_fields=True):
    """A request arrived."""

    now: float
    request: Request


class Cancel(msgspec.Struct, tag="cancel", frozen=True, forbid_unknown_fields=True):
    """A request was cancelled."""

    now: float
    request_id: RequestId
    reason: str


class Stop(msgspec.Struct, tag="stop", frozen=True, forbid_unknown_fields=True):
    """The text layer found a stop string."""

    now: float
    request_id: RequestId
    index: int


class Schedule(msgspec.Struct, tag="schedule", frozen=True, forbid_unknown_fields=True):
    """A plan was asked for; ``plan`` is what the scheduler answered."""

    now: float
    plan: dict[str, Any]


class Apply(msgspec.Struct, tag="apply", frozen=True, forbid_unknown_fields=True):
    """A step was computed."""

    now: float
    result: StepResult


Record = Header | Submit | Cancel | Stop | Schedule | Apply


class _AnyHeader(msgspec.Struct, tag="header", frozen=True):
    """What the first line of every format says."""

    format_version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)
_header_decoder = msgspec.json.Decoder(_AnyHeader)


@dataclass(frozen=True, slots=True)
class Line:
    """A decoded journal line and where it stands."""

    number: int
    record: Record


def encode(record: Record) -> bytes:
    """Return one line, newline included."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes, number: int) -> Line:
    """Read one line.

    Raises:
        JournalError: the line is not a record of this format; if another one is named, that is
            said.
    """
    try:
        record = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        _check_version(line, number)
        raise JournalError(f"journal line {number} can't be read: {error}") from error
    if isinstance(record, Header):
        _check_version(line, number)
    return Line(number, record)


def _check_version(line: bytes, number: int) -> None:
    """Refuse a header of another format, even if the rest of it can't be read."""
    try:
        version = _header_decoder.decode(line).format_version
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return  # no header at all
    if version != FORMAT_VERSION:
        raise JournalError(
            f"journal line {number} begins a section of format {version}; this version of "
            f"Headway reads format {FORMAT_VERSION}"
        )


def plan_record(plan: StepPlan | Idle) -> dict[str, Any]:
    """Return a plan as plain JSON values, its kind and the kinds of its events named.

    Slices and block moves, of which there may be hundreds, are arrays of their fields.
    """
    fields: dict[str, Any] = msgspec.to_builtins(plan, str_keys=True)
    fields["events"] = [_event_record(event) for event in plan.events]
    if isinstance(plan, Idle):
        return {"kind": "idle", **fields}
    if plan.padding is not None:
        fields["padding"] = plan.padding._asdict()
    return {"kind": "plan", **fields}


def plan_bytes(plan: StepPlan | Idle) -> bytes:
    """Return a plan as one canonical line of a plan log."""
    return _encoder.encode(plan_record(plan)) + b"\n"


def _event_record(event: Event) -> dict[str, Any]:
    # a named tuple would be written as an array, without the names
    plain = event._asdict() if isinstance(event, TokenReady) else event
    fields: dict[str, Any] = msgspec.to_builtins(plain, str_keys=True)
    return {"event": type(event).__name__, **fields}
