"""A frozen picture of the scheduler, for gauges, health and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.core.accounts import ClassAccount
    from headway.core.memory import Memory
    from headway.core.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStatistics:
    """One service class.

    Attributes:
        num_waiting_sequences: sequences that have not run yet.
        num_held: of these, held back for a batch to fill.
        num_running: sequences that hold a slot.
        num_blocks: blocks that its sequences hold; one that several share counts once.
        num_served_input_tokens: prompt tokens computed, without those found in the prefix cache.
        num_served_output_tokens: tokens sampled.
    """

    name: str
    num_waiting_sequences: int
    num_held: int
    num_running: int
    num_blocks: int
    num_served_input_tokens: int
    num_served_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the scheduler holds now, and what it has done since it was made.

    Attributes:
        num_waiting: requests of which no sequence has run yet.
        num_waiting_sequences: sequences that have not run yet, of these and other requests.
        num_preempted: sequences that ran, lost their slot, and wait to resume.
        num_running: sequences that hold a slot.
        num_waiting_tokens: prompt tokens of the waiting sequences.
        num_free_blocks: blocks that no sequence holds, cached ones included.
        num_submitted: all calls of ``submit``; the sum of the five outcomes and ``num_live``.
        num_live: requests without a terminal event.
        num_steps: plans made.
        num_cached_tokens: prompt tokens whose KV was there already when their sequence started.
        num_evicted_blocks: cached blocks that were given to others.
        num_swapped_out_blocks: blocks moved to the swap space.
        num_swapped_in_blocks: blocks moved back.
        classes: in the order of the configuration.
    """

    num_waiting: int
    num_waiting_sequences: int
    num_preempted: int
    num_running: int
    num_waiting_tokens: int
    num_blocks: int
    num_free_blocks: int
    block_size: int
    num_swap_blocks: int
    num_free_swap_blocks: int
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
    num_cached_tokens: int
    num_evicted_blocks: int
    num_swapped_out_blocks: int
    num_swapped_in_blocks: int
    classes: tuple[ClassStatistics, ...]

    @property
    def num_running_requests(self) -> int:
        """Live requests of which some sequence has run."""
        return self.num_live - self.num_waiting


def snapshot(work: Work) -> Statistics:
    """Return what the containers hold now."""
    counters, memory, accounts = work.counters, work.memory, work.accounts.values()
    return Statistics(
        num_waiting=work.num_waiting,
        num_waiting_sequences=sum(account.num_waiting_sequences for account in accounts),
        num_preempted=work.num_preempted,
        num_running=len(work.running),
        num_waiting_tokens=sum(account.num_waiting_tokens for account in accounts),
        num_blocks=memory.pool.num_blocks,
        num_free_blocks=memory.pool.num_free,
        block_size=memory.pool.block_size,
        num_swap_blocks=memory.swap.num_blocks,
        num_free_swap_blocks=memory.swap.num_free,
        num_live=len(work.requests),
        num_submitted=counters.submitted,
        num_finished=counters.finished,
        num_failed=counters.failed,
        num_cancelled=counters.cancelled,
        num_expired=counters.expired,
        num_rejected=counters.rejected,
        num_preemptions=counters.preemptions,
        num_resumed=counters.resumed,
        num_steps=counters.steps,
        num_cached_tokens=memory.num_cached_tokens,
        num_evicted_blocks=memory.pool.num_evictions,
        num_swapped_out_blocks=memory.num_swapped_out,
        num_swapped_in_blocks=memory.num_swapped_in,
        classes=tuple(_class_snapshot(account, memory) for account in accounts),
    )


def _class_snapshot(account: ClassAccount, memory: Memory) -> ClassStatistics:
    return ClassStatistics(
        name=account.settings.name,
        num_waiting_sequences=account.num_waiting_sequences,
        num_held=len(account.hold),
        num_running=account.num_running,
        num_blocks=memory.num_blocks_of(account),
        num_served_input_tokens=account.service.num_input_tokens,
        num_served_output_tokens=account.service.num_output_tokens,
    )
