"""The invariants of the scheduler, numbered as in ``docs/design/invariants.md``.

They read everything and change nothing. ``Scheduler.check()`` runs them all; tests do so after
every move. Invariants 7, 8 and 9 speak of histories, so tests check them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headway.core.lifecycle import State
from headway.core.limits import Batching
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
    _promises_are_kept(scheduler)
    _each_sequence_is_in_one_place(scheduler)
    _requests_are_conserved(scheduler)
    _plans_keep_the_limits(scheduler)
    _classes_keep_their_shares(scheduler)
    _only_computed_blocks_are_shared(scheduler)
    _waiting_is_bounded(scheduler)
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


def _sequences(scheduler: Scheduler) -> Iterator[Sequence]:
    for live in scheduler.work.requests.values():
        yield from live.sequences


def _blocks_are_conserved(scheduler: Scheduler) -> None:
    """Invariant 1: free + held = pool; a reference count is the number of tables that hold it."""
    memory = scheduler.work.memory
    pool = memory.pool
    held = Counter(block_id for s in _sequences(scheduler) for block_id in s.block_ids)
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
    known = memory.cache.known_ids() if memory.cache else ()
    _require(len(set(known)) == len(known), "1: a block is known by two names")
    swapped = [block_id for s in _sequences(scheduler) for block_id in s.swap_block_ids]
    _require(len(set(swapped)) == len(swapped), "1: two sequences hold one swap block")
    num_swapped = memory.swap.num_blocks - memory.swap.num_free
    _require(len(swapped) == num_swapped, "1: a swap block is neither free nor held")


def _promises_are_kept(scheduler: Scheduler) -> None:
    """Invariant 1: what is reserved is free or used as meant; all promises fit into the pool."""
    work = scheduler.work
    pool = work.memory.pool
    lives = [pool.blocks_for(s.max_positions) for s in work.running.values() if s.is_promised]
    _require(sum(lives) == work.memory.num_promised, "1: the promised blocks are miscounted")
    accounts = work.accounts.values()
    reserved = sum(a.settings.reserved_blocks for a in accounts)
    _require(sum(lives) + reserved <= pool.num_blocks, "1: more is promised than there is")
    unused = sum(a.num_unused_blocks for a in accounts)
    _require(unused <= pool.num_free, "1: reserved blocks were given away")


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
            is_parked = sequence in live.parked
            is_waiting = sequence in live.account.queue
            num_placed += is_running + is_waiting
            should_wait = sequence.state in (State.WAITING, State.PREEMPTED)
            _require(is_running == (sequence.state is State.RUNNING), "2: wrong place", live)
            _require(is_waiting + is_parked == should_wait, "2: wrong place", live)
    queues = [account.queue for account in work.accounts.values()]
    num_members = len(work.running) + sum(map(len, queues))
    _require(num_members == num_placed, "2: a container holds work of no live request")
    for queue in queues:
        _require(sum(1 for _ in queue) == len(queue), "2: the queue lost an entry")
    parts = work.decoding.keys() | work.prefilling.keys()
    _require(parts == work.running.keys(), "2: running is not decoding plus prefilling")
    _require(not work.decoding.keys() & work.prefilling.keys(), "2: decoding and prefilling")


def _requests_are_conserved(scheduler: Scheduler) -> None:
    """Invariant 3: submitted = finished + failed + cancelled + expired + rejected + live."""
    seen = scheduler.statistics()
    ended = seen.num_finished + seen.num_failed + seen.num_cancelled + seen.num_expired
    _require(
        seen.num_submitted == ended + seen.num_rejected + seen.num_live,
        f"3: requests are not conserved: {seen}",
    )
    num_waiting = sum(r.state is State.WAITING for r in scheduler.work.requests.values())
    _require(seen.num_waiting == num_waiting, "3: the count of waiting requests is off")
    every = [s for s in _sequences(scheduler) if s.is_live]
    num_preempted = sum(s.state is State.PREEMPTED for s in every)
    _require(seen.num_preempted == num_preempted, "3: the count of preempted sequences is off")
    for account in scheduler.work.accounts.values():
        own = [s for s in every if s.account is account]
        fresh = [s for s in own if s.state is State.WAITING]
        running = [s for s in own if s.state is State.RUNNING]
        num_tokens = sum(s.num_prompt_tokens for s in fresh)
        _require(account.num_waiting_sequences == len(fresh), "3: waiting sequences are miscounted")
        _require(account.num_waiting_tokens == num_tokens, "3: waiting tokens are miscounted")
        _require(account.num_live_sequences == len(own), "3: live sequences are miscounted")
        _require(account.num_running == len(running), "3: running sequences are miscounted")
        num_decoding = sum(s.account is account for s in scheduler.work.decoding.values())
        _require(account.num_decoding == num_decoding, "3: decoding sequences are miscounted")
        num_blocks = len({block_id for s in running for block_id in s.block_ids})
        num_counted = scheduler.work.memory.num_blocks_of(account)
        _require(num_counted == num_blocks, "3: the blocks of a class are miscounted")


def _plans_keep_the_limits(scheduler: Scheduler) -> None:
    """Invariant 4: slices within the token budget, sequences within ``max_num_seqs``."""
    limits, work = scheduler.limits, scheduler.work
    num_slots = len(work.running) + work.num_ghosts
    _require(num_slots <= limits.max_num_seqs, "4: too many sequences run")
    for step_id, step in work.in_flight.items():
        num_tokens = len(step.decodes) + sum(part.count for _, part in step.chunks)
        _require(num_tokens <= limits.max_num_batched_tokens, f"4: step {step_id} beyond budget")
        members = [s.sequence_id for s in step.decodes]
        members += [s.sequence_id for s, _ in step.chunks]
        _require(len(members) <= limits.max_num_seqs, f"4: step {step_id} has too many sequences")
        _require(len(set(members)) == len(members), f"4: step {step_id} has a sequence twice")


def _classes_keep_their_shares(scheduler: Scheduler) -> None:
    """Invariant 4: no class has more slots or tokens of a step than its largest share."""
    limits, work = scheduler.limits, scheduler.work
    has_token_shares = limits.batching is Batching.CONTINUOUS and limits.enable_chunked_prefill
    for account in work.accounts.values():
        name = account.settings.name
        _require(account.num_running <= account.max_running, f"4: class {name} beyond its share")
        is_within = account.num_running <= 1 or account.num_share_blocks >= 0
        _require(is_within, f"4: class {name} holds blocks beyond its share")
        for step_id, step in work.in_flight.items():
            num_tokens = sum(s.account is account for s in step.decodes)
            num_tokens += sum(p.count for s, p in step.chunks if s.account is account)
            _require(
                num_tokens <= account.max_step_tokens or not has_token_shares,
                f"4: step {step_id} has {num_tokens} tokens of class {name}, beyond its share",
            )


def _only_computed_blocks_are_shared(scheduler: Scheduler) -> None:
    """Invariant 5: a block is shared only after the step that wrote it was applied.

    So every block beyond the computed positions of a sequence is its own.
    """
    pool = scheduler.work.memory.pool
    for sequence in scheduler.work.running.values():
        num_whole = sequence.num_computed_tokens // pool.block_size
        for block_id in sequence.block_ids[num_whole:]:
            _require(
                pool.reference_count(block_id) == 1,
                f"5: block {block_id} is shared and not computed yet",
                sequence.parent,
            )


def _waiting_is_bounded(scheduler: Scheduler) -> None:
    """Invariant 6: nobody is passed or preempted beyond the bound; no hold outlives its bound."""
    limits = scheduler.limits
    for sequence in _sequences(scheduler):
        live = sequence.parent
        _require(sequence.num_passed <= limits.max_passes, "6: passed too often", live)
        _require(sequence.num_preemptions <= limits.max_preemptions, "6: preempted too often", live)
    if limits.batching is Batching.STATIC or scheduler.scheduled_at is None:
        return
    for account in scheduler.work.accounts.values():
        first = account.hold.first_release()
        _require(
            first is None or first > scheduler.scheduled_at,
            f"6: work of class {account.settings.name} was held beyond {first}",
        )


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
    num_needed = scheduler.work.memory.pool.blocks_for(sequence.num_scheduled_tokens)
    if sequence.swap_block_ids:
        _require(not sequence.block_ids, "swapped out and in the pool", live)
        _require(len(sequence.swap_block_ids) == num_needed, "a swap table is too short", live)
        num_needed = 0
    _require(len(sequence.block_ids) == num_needed, "a block table has the wrong length", live)
    _require(sequence.num_blocks_sent == num_needed, "the executor has another table", live)
    num_sampling = sum(
        (sequence in step.decodes) + any(s is sequence and p.sample for s, p in step.chunks)
        for step in scheduler.work.in_flight.values()
    )
    _require(sequence.num_pending_tokens == num_sampling, "pending tokens are off", live)
