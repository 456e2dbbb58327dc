"""Core values as JSON and back: the lines of a journal.

Every stimulus is an object whose first key names it; a plan is written with its events, so two
plan logs can be compared byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headway.core.events import Event
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, StepPlan, StepResult
from headway.core.request import Request
from headway.errors import JournalError

FORMAT_VERSION = 1


class Header(msgspec.Struct, tag="header", frozen=True, forbid_unknown_fields=True):
    """First line: what is needed to build the same scheduler."""

    format_version: int
    limits: SchedulerLimits
    policy: str


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

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


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
        JournalError: the line is not a record of this format.
    """
    try:
        return Line(number, _decoder.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise JournalError(f"journal line {number} can't be read: {error}") from error


def plan_record(plan: StepPlan | Idle) -> dict[str, Any]:
    """Return a plan as plain JSON values, its kind and the kinds of its events named."""
    fields: dict[str, Any] = msgspec.to_builtins(plan, str_keys=True)
    fields["events"] = [_event_record(event) for event in plan.events]
    return {"kind": "plan" if isinstance(plan, StepPlan) else "idle", **fields}


def plan_bytes(plan: StepPlan | Idle) -> bytes:
    """Return a plan as one canonical line of a plan log."""
    return _encoder.encode(plan_record(plan)) + b"\n"


def _event_record(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(event, str_keys=True)
    return {"event": type(event).__name__, **fields}
