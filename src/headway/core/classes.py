"""Service classes: what the operator promises to, and asks of, one kind of traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class PolicyName(StrEnum):
    """In which order waiting work is looked at."""

    FCFS = "fcfs"
    SJF = "sjf"
    PRIORITY = "priority"
    FAIR = "fair"
    SLO = "slo"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClass:
    """Settings of one class. ``None`` means: no limit of its own.

    Attributes:
        weight: tokens served are shared between backlogged classes in proportion to it.
        policy: orders the work inside the class; None is the scheduler's policy.
        priority: of its requests that bring none; lower goes first.
        ttft_target_s: time to the first token that is promised, in seconds.
        tpot_target_s: time for each further token that is promised, in seconds.
        min_running_share: share of the slots that it gets whenever it has work, if need be by
            preempting classes above theirs.
        max_running_share: share of slots, blocks and step tokens that it never exceeds. One
            sequence may always run, and be as long as the pool.
        max_queue_requests: sequences of it that may wait.
        max_queue_tokens: prompt tokens of it that may wait; one request may always wait.
        max_output_tokens: longer answers are cut to this.
        max_waiting_time_s: how long its new work may be held for a batch to fill; None is the
            scheduler's.
        queue_timeout_s: requests that waited this long without running end.
        request_timeout_s: requests that took this long end.
        best_effort: its sequences are preempted before those of other classes.
        reserved_slots: slots that nobody else may use. A class that has any never queues: a request
            that its reservation can't hold from start to end is refused at once.
        reserved_blocks: blocks that nobody else may use; goes with ``reserved_slots``.
    """

    name: str = "default"
    weight: float = 1.0
    policy: PolicyName | None = None
    priority: int = 0
    ttft_target_s: float | None = None
    tpot_target_s: float | None = None
    min_running_share: float = 0.0
    max_running_share: float = 1.0
    max_queue_requests: int | None = None
    max_queue_tokens: int | None = None
    max_output_tokens: int | None = None
    max_waiting_time_s: float | None = None
    queue_timeout_s: float | None = None
    request_timeout_s: float | None = None
    best_effort: bool = False
    reserved_slots: int = 0
    reserved_blocks: int = 0

    def num_guaranteed(self, max_num_seqs: int) -> int:
        """Return the slots of its minimum share, rounded up."""
        return math.ceil(round(self.min_running_share * max_num_seqs, 9))

    def __post_init__(self) -> None:
        flaw = self._flaw()
        if flaw:
            raise ValueError(f"class {self.name}: {flaw}")

    def _flaw(self) -> str | None:
        low, high = self.min_running_share, self.max_running_share
        if not 0 < self.weight < math.inf:
            return f"weight must be above 0, not {self.weight}"
        if not 0 <= low <= high <= 1 or high == 0:
            return (
                f"min_running_share ({low}) and max_running_share ({high}) must lie between 0 "
                "and 1, in this order"
            )
        if (self.reserved_slots > 0) != (self.reserved_blocks > 0):
            return "reserved_slots and reserved_blocks go together"
        if self.reserved_slots and (low > 0 or high < 1):
            return "a class with reserved_slots can't have shares as well"
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                return f"{name} must be above 0, not {value}"
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                return f"{name} must not be negative, as {value} is"
        return None


_POSITIVE = (
    "ttft_target_s",
    "tpot_target_s",
    "max_queue_tokens",
    "max_output_tokens",
    "queue_timeout_s",
    "request_timeout_s",
)
_NOT_NEGATIVE = ("max_queue_requests", "max_waiting_time_s", "reserved_slots", "reserved_blocks")
