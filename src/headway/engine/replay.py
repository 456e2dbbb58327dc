"""Feeds a journal to a fresh scheduler and finds the first plan that differs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headway.core.limits import SchedulerLimits
from headway.core.policy import FirstComeFirstServed, Policy
from headway.core.scheduler import Scheduler
from headway.engine import records
from headway.errors import HeadwayError, JournalError

_POLICIES: dict[str, type[Policy]] = {"FirstComeFirstServed": FirstComeFirstServed}


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
    """Replay a journal, checking the scheduler's invariants after each stimulus.

    Raises:
        JournalError: the journal names settings or a policy that can't be rebuilt.
    """
    entries = iter(lines)
    first = next(entries, None)
    if first is None or not isinstance(first.record, records.Header):
        raise JournalError("the journal does not begin with a header")
    scheduler = _rebuild(first.record.limits, first.record.policy)
    num_stimuli = num_plans = 0
    for line in entries:
        num_stimuli += 1
        num_plans += isinstance(line.record, records.Schedule)
        difference = _feed(scheduler, line)
        if difference is not None:
            return ReplayReport(num_stimuli, num_plans, difference)
    return ReplayReport(num_stimuli, num_plans, None)


def _rebuild(limits: SchedulerLimits, policy: str) -> Scheduler:
    if policy not in _POLICIES:
        raise JournalError(f"the journal names an unknown policy: {policy}")
    return Scheduler(limits, _POLICIES[policy]())


def _feed(scheduler: Scheduler, line: records.Line) -> Difference | None:
    """Give one stimulus to the scheduler; only plans are compared."""
    record = line.record
    try:
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
            case records.Header():
                raise JournalError(f"journal line {line.number} is a second header")
        scheduler.check()
    except HeadwayError as error:
        if isinstance(error, JournalError):
            raise
        return Difference(line.number, "the scheduler raised", None, str(error))
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
