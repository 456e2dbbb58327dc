"""One request to be sent, and who sends it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from headway.report import Record
from headway.workload import Arrival

Now = Callable[[], float]
"""Seconds since the workload began."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request with its name, which tells its made-up prompt from others', and its record.

    The record knows when it is due, its class and its tenant.
    """

    name: str
    arrival: Arrival
    record: Record


Send = Callable[[Now], Coroutine[Any, Any, None]]
"""Sends a request that is ready, and takes its whole answer."""


class Sender(Protocol):
    """Has requests answered."""

    def prepare(self, job: Job) -> Send:
        """Make a request ready, before it is due, so that it can leave at once when it is.

        What is returned takes the whole answer, unless the request's conduct is to go away, and
        writes whatever becomes of it into the record. If cancelled, the record stays unfinished.
        """
        ...
