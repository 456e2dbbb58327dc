"""What walls between instances cost: one has nothing to do while a request waits at another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.sim.fleet import FleetResult
from headway.sim.records import RequestRecord


class _Change(NamedTuple):
    """At a moment one request more or less waits, or runs on an instance."""

    at_s: float
    waiting: int
    running: int
    instance: int


def idle_while_waiting(result: FleetResult) -> float:
    """Return the share of the instances' time in which one was idle and somebody waited.

    Idle is an instance without a request that has begun and not ended. Waiting is who hasn't begun
    yet; preempted ones wait where their work is, and don't count.
    """
    running = [0] * len(result.replicas)
    idle, waiting = len(running), 0
    lost_s = last_s = 0.0
    for change in sorted(_changes(result)):
        if waiting:
            lost_s += idle * (change.at_s - last_s)
        last_s = change.at_s
        waiting += change.waiting
        before = running[change.instance]
        running[change.instance] = after = before + change.running
        idle += (after == 0) - (before == 0)
    return lost_s / (result.end_s * len(running)) if result.end_s else 0.0


def _changes(result: FleetResult) -> Iterator[_Change]:
    for instance, replica in enumerate(result.replicas):
        for each in replica.requests:
            yield from _changes_of(each, instance, result.end_s)


def _changes_of(each: RequestRecord, instance: int, end_s: float) -> Iterator[_Change]:
    ended_s = end_s if each.ended_at is None else each.ended_at
    yield _Change(each.arrival.at_s, 1, 0, instance)
    if each.started_at is None:
        yield _Change(ended_s, -1, 0, instance)
        return
    yield _Change(each.started_at, -1, 1, instance)
    yield _Change(ended_s, 0, -1, instance)
