"""A frozen picture of the scheduler, for gauges, health and tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the scheduler holds now, and what it has done since it was made.

    Attributes:
        num_waiting: requests of which no sequence has run yet.
        num_waiting_sequences: sequences that have not run yet, of these and other requests.
        num_preempted: sequences that ran, lost their blocks, and wait to resume.
        num_running: sequences that hold a slot.
        num_waiting_tokens: prompt tokens of the waiting sequences.
        num_submitted: all calls of ``submit``; the sum of the five outcomes and ``num_live``.
        num_live: requests without a terminal event.
        num_steps: plans made.
    """

    num_waiting: int
    num_waiting_sequences: int
    num_preempted: int
    num_running: int
    num_waiting_tokens: int
    num_blocks: int
    num_free_blocks: int
    block_size: int
    num_live: int
    num_submitted: int
    num_finished: int
    num_failed: int
    num_cancelled: int
    num_expired: int
    num_rejected: int
    num_preemptions: int
    num_resumed: int
    num_steps: int

    @property
    def num_running_requests(self) -> int:
        """Live requests of which some sequence has run."""
        return self.num_live - self.num_waiting
