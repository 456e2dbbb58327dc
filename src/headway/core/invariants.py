"""The invariants of the scheduler, numbered as in ``docs/design/invariants.md``.

They read everything and change nothing. ``Scheduler.check()`` runs them all; tests do so after
every move. Invariants 5 (sharing), 7, 8 and 9 speak of histories, so tests check them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headway.core.lifecycle import State
from headway.core.sequence import LiveRequest, Sequence
from headway.errors import InvariantError

if TYPE_CHECKING:
    from headway.core.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    """Check all invariants.

    Raises:
        InvariantError: one does not hold.
    """
    _blocks_are_conserved(scheduler)
    _each_sequence_is_in_one_place(scheduler)
    _requests_are_conserved(scheduler)
    _plans_keep_the_limits(scheduler)
    _nobody_was_passed(scheduler)
    for live in scheduler.work.requests.values():
        for sequence in live.sequences:
            if sequence.is_live:  # what ended may still be in flight, and is ignored then
                _counters_are_ordered(scheduler, sequence)


def _require(condition: bool, message: str, live: LiveRequest | None = None) -> None:
    if condition:
        return
    if live is not None:
        steps = ", ".join(f"{now:.6f} {index} {move}" for now, index, move in live.story)
        message = f"{message}; story of request {live.request.request_id}: {steps}"
    raise InvariantError(message)


def _blocks_are_conserved(scheduler: Scheduler) -> None:
    """Invariant 1: free + held = pool; a reference count is the number of tables that hold it."""
    pool = scheduler.pool
    held = Counter(
        block_id
        for live in scheduler.work.requests.values()
        for sequence in live.sequences
        for block_id in sequence.block_ids
    )
    free = pool.free_ids()
    _require(len(set(free)) == len(free), "1: a block is on the free list twice")
    _require(not held.keys() & set(free), "1: a block is free and held")
    _require(len(held) + len(free) == pool.num_blocks, "1: a block is neither free nor held")
    for block_id in range(pool.num_blocks):
        count = pool.reference_count(block_id)
        _require(
            count == held[block_id],
            f"1: block {block_id} is counted {count} times and held {held[block_id]} times",
        )


def _each_sequence_is_in_one_place(scheduler: Scheduler) -> None:
    """Invariant 2: each live sequence is where its state says, and nothing else is anywhere."""
    work = scheduler.work
    num_placed = 0
    for live in work.requests.values():
        num_live = sum(sequence.is_live for sequence in live.sequences)
        _require(live.is_live and num_live > 0, "2: an ended request is kept", live)
        _require(live.num_live_sequences == num_live, "2: live sequences are miscounted", live)
        for sequence in live.sequences:
            is_running = work.running.get(sequence.sequence_id) is sequence
            is_waiting = sequence in work.waiting
            num_placed += is_running + is_waiting
            should_wait = sequence.state in (State.WAITING, State.PREEMPTED)
            _require(is_running == (sequence.state is State.RUNNING), "2: wrong place", live)
            _require(is_waiting == should_wait, "2: wrong place", live)
    num_members = len(work.running) + len(work.waiting)
    _require(num_members == num_placed, "2: a container holds work of no live request")
    _require(sum(1 for _ in work.waiting) == len(work.waiting), "2: the queue lost an entry")


def _requests_are_conserved(scheduler: Scheduler) -> None:
    """Invariant 3: submitted = finished + failed + cancelled + expired + rejected + live."""
    seen = scheduler.statistics()
    ended = seen.num_finished + seen.num_failed + seen.num_cancelled + seen.num_expired
    _require(
        seen.num_submitted == ended + seen.num_rejected + seen.num_live,
        f"3: requests are not conserved: {seen}",
    )
    waiting = [r for r in scheduler.work.requests.values() if r.state is State.WAITING]
    _require(seen.num_waiting == len(waiting), "3: the count of waiting requests is off")
    fresh = [s for s in scheduler.work.waiting if s.state is State.WAITING]
    _require(seen.num_waiting_sequences == len(fresh), "3: waiting sequences are miscounted")
    num_tokens = sum(s.num_prompt_tokens for s in fresh)
    _require(seen.num_waiting_tokens == num_tokens, "3: the count of waiting tokens is off")
    num_preempted = sum(s.state is State.PREEMPTED for s in scheduler.work.waiting)
    _require(seen.num_preempted == num_preempted, "3: the count of preempted sequences is off")


def _plans_keep_the_limits(scheduler: Scheduler) -> None:
    """Invariant 4: slices within the token budget, sequences within ``max_num_seqs``."""
    limits = scheduler.limits
    _require(len(scheduler.work.running) <= limits.max_num_seqs, "4: too many sequences run")
    for step_id, parts in scheduler.work.in_flight.items():
        num_tokens = sum(part.end - part.start for part in parts)
        _require(num_tokens <= limits.max_num_batched_tokens, f"4: step {step_id} beyond budget")
        _require(len(parts) <= limits.max_num_seqs, f"4: step {step_id} has too many sequences")
        _require(
            len({part.sequence.sequence_id for part in parts}) == len(parts),
            f"4: step {step_id} has a sequence twice",
        )


def _nobody_was_passed(scheduler: Scheduler) -> None:
    """Invariant 6: by the policy's order, no waiting sequence stands before a running one."""
    order = scheduler.policy.order
    first = scheduler.work.waiting.peek()
    if first is None:
        return
    for sequence in scheduler.work.running.values():
        _require(order(sequence) < order(first), "6: a waiting sequence was passed", first.parent)


def _counters_are_ordered(scheduler: Scheduler, sequence: Sequence) -> None:
    """Computed ≤ scheduled ≤ known tokens; blocks cover what is scheduled, and no more is held."""
    live = sequence.parent
    _require(
        0
        <= sequence.num_computed_tokens
        <= sequence.num_scheduled_tokens
        <= min(sequence.num_tokens, sequence.max_positions),
        f"counters of sequence {sequence.sequence_id} are out of order",
        live,
    )
    num_needed = scheduler.pool.blocks_for(sequence.num_scheduled_tokens)
    _require(len(sequence.block_ids) == num_needed, "a block table has the wrong length", live)
    _require(sequence.num_blocks_sent == num_needed, "the executor has another table", live)
    num_sampling = sum(
        part.sample and part.sequence is sequence
        for parts in scheduler.work.in_flight.values()
        for part in parts
    )
    _require(sequence.num_pending_tokens == num_sampling, "pending tokens are off", live)
