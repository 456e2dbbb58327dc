"""What became of one request: the record that load tests, simulations and comparisons share."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    FAILED = "failed"  # refused, broken off, timed out: ``error`` says of what
    CANCELLED = "cancelled"  # its client went away, as the workload has it
    UNFINISHED = "unfinished"  # it still ran when the measurement ended


@dataclass(slots=True, kw_only=True)
class Record:
    """One request. All moments are seconds since the workload began.

    Attributes:
        class_name: its service class.
        tenant: whose it is.
        due_s: when it was to be sent. Every latency counts from here, so a client or a server
            that is late can't hide it (no coordinated omission).
        sent_s: when it really was; None if it never was.
        started_s: when it first ran, where that is known.
        token_times: when the client saw each piece of the answer: one or several tokens.
        ended_s: when the last piece, or the error, had come.
        input_tokens: length of the prompt, as the server counted it where it did.
        output_tokens: length of the answer, likewise.
        outcome: how it ended.
        error: kind of failure, one word or a few (``http 503 queue_full``); empty if none.
        detail: what exactly was wrong, for people.
        stalled: its client stopped reading for a time on purpose; its times measure the client, so
            it counts, but not in any latency.
        num_preemptions: how often it lost its slot, where that is known.
        num_cached_tokens: prompt tokens found in a prefix cache, where that is known.
    """

    due_s: float
    class_name: str = "default"
    tenant: str = ""
    sent_s: float | None = None
    started_s: float | None = None
    token_times: array[float] = field(default_factory=lambda: array("d"))
    ended_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    outcome: Outcome = Outcome.UNFINISHED
    error: str = ""
    detail: str = ""
    stalled: bool = False
    num_preemptions: int | None = None
    num_cached_tokens: int | None = None

    @property
    def is_measured(self) -> bool:
        """Whether its latencies count: it was completed by a client that read."""
        return self.outcome is Outcome.COMPLETED and not self.stalled

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return self.token_times[0] - self.due_s if self.token_times else None

    @property
    def tpot_s(self) -> float | None:
        """Time per further token: (end - first token) / (output tokens - 1); None of a single one.

        The end is that of the last piece, since servers send several tokens at once.
        """
        if self.output_tokens < 2 or not self.token_times or self.ended_s is None:
            return None
        return (self.ended_s - self.token_times[0]) / (self.output_tokens - 1)

    @property
    def e2el_s(self) -> float | None:
        """From when it was due to its end."""
        return None if self.ended_s is None else self.ended_s - self.due_s

    @property
    def late_s(self) -> float | None:
        """How much later than due it was sent: the client's own fault."""
        return None if self.sent_s is None else self.sent_s - self.due_s

    @property
    def queued_s(self) -> float | None:
        """From when it was due until it first ran."""
        return None if self.started_s is None else self.started_s - self.due_s

    def gaps_s(self) -> Iterator[float]:
        """Yield the time between each two pieces (ITL)."""
        return (after - before for before, after in pairwise(self.token_times))
