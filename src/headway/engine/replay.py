"""Feeds a journal to a fresh scheduler and finds the first plan that differs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headway.core.scheduler import Scheduler
from headway.engine import records
from headway.errors import InvariantError, JournalError

#: stimuli between two checks of all invariants
CHECK_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the replayed scheduler decided otherwise."""

    line: int
    what: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found. ``difference`` is None when all plans are the same."""

    num_stimuli: int
    num_plans: int
    difference: Difference | None


def replay(lines: Iterable[records.Line]) -> ReplayReport:
    """Replay a journal, section by section, each with a fresh scheduler.

    Invariants are checked every ``CHECK_EVERY`` stimuli and at the end, since a check takes time
    in proportion to the pool.

    Raises:
        JournalError: the journal names settings that no scheduler can have.
    """
    scheduler: Scheduler | None = None
    num_stimuli = num_plans = number = 0
    for line in lines:
        number = line.number
        if isinstance(line.record, records.Header):
            scheduler = _rebuild(number, line.record)
            continue
        if scheduler is None:
            break
        num_stimuli += 1
        difference = _feed(scheduler, line)
        if difference is None and num_stimuli % CHECK_EVERY == 0:
            difference = _check(scheduler, number)
        if difference is not None:
            return ReplayReport(num_stimuli, num_plans, difference)
        num_plans += _has_plan(line.record)
    if scheduler is None:
        raise JournalError("the journal does not begin with a header")
    return ReplayReport(num_stimuli, num_plans, _check(scheduler, number))


def _has_plan(record: records.Record) -> bool:
    return isinstance(record, records.Schedule) and record.plan.get("kind") == "plan"


def _check(scheduler: Scheduler, number: int) -> Difference | None:
    try:
        scheduler.check()
    except InvariantError as error:
        return Difference(number, "an invariant does not hold", None, str(error))
    return None


def _rebuild(line: int, header: records.Header) -> Scheduler:
    try:
        return Scheduler(header.config)
    except ValueError as error:
        raise JournalError(f"journal line {line}: no scheduler can be so: {error}") from error


def _feed(scheduler: Scheduler, line: records.Line) -> Difference | None:
    """Give one stimulus to the scheduler; only plans are compared."""
    try:
        return _move(scheduler, line)
    except InvariantError as error:
        return Difference(line.number, "the scheduler raised", None, str(error))


def _move(scheduler: Scheduler, line: records.Line) -> Difference | None:
    record = line.record
    match record:
        case records.Submit():
            scheduler.submit(record.request, record.now)
        case records.Cancel():
            scheduler.cancel(record.request_id, record.now, record.reason)
        case records.Stop():
            scheduler.stop(record.request_id, record.index, record.now)
        case records.Apply():
            scheduler.apply(record.result, record.now)
        case records.Schedule():
            return _compare(scheduler, record, line.number)
    return None


def _compare(scheduler: Scheduler, record: records.Schedule, number: int) -> Difference | None:
    replayed = records.plan_record(scheduler.schedule(record.now))
    # through JSON, since a recorded tuple comes back as a list
    replayed = msgspec.json.decode(msgspec.json.encode(replayed))
    if replayed == record.plan:
        return None
    for key in [*record.plan, *replayed]:
        if record.plan.get(key) != replayed.get(key):
            return Difference(number, key, record.plan.get(key), replayed.get(key))
    return Difference(number, "plan", record.plan, replayed)
