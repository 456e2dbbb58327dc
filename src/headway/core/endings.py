"""How sequences and requests end: out of their container, blocks freed, counted, told, once."""

from __future__ import annotations

from headway.core.accounts import ClassAccount, Flow
from headway.core.drain_rate import DrainRate
from headway.core.events import Event, Finished, FinishReason, SequenceFinished
from headway.core.lifecycle import Move, State
from headway.core.limits import Batching, SchedulerLimits
from headway.core.policy import Policies
from headway.core.sequence import LiveRequest, Sequence
from headway.core.work import Work

_MAX_IDLE_FLOWS = 1024
"""Beyond so many tenants a class forgets those that have no work."""


class Endings:
    """The one way out: every terminal event passes here."""

    def __init__(self, work: Work, limits: SchedulerLimits, policies: Policies) -> None:
        self._work = work
        self._is_static = limits.batching is Batching.STATIC
        self._policies = policies
        self.drain_rate = DrainRate()

    def finish_sequence(
        self, sequence: Sequence, reason: FinishReason, stop_token_id: int | None, now: float
    ) -> None:
        """End a sequence well, and its request with the last one."""
        live = sequence.parent
        self._end_sequence(sequence, Move.FINISH, now)
        self._policies.learn(sequence)
        event = SequenceFinished(sequence.request_id, sequence.index, reason, stop_token_id)
        self._work.events.append(event)
        if live.num_live_sequences == 0:
            self.end_request(live, Move.FINISH, Finished(sequence.request_id), now)
        else:
            self.unpark(live)

    def end_request(self, live: LiveRequest, move: Move, event: Event, now: float) -> None:
        """End a request with its terminal event."""
        for sequence in live.sequences:
            if sequence.is_live:
                self._end_sequence(sequence, move, now)
        self._work.num_waiting -= live.state is State.WAITING
        live.move(move, now)
        del self._work.requests[live.request.request_id]
        _leave_flow(live.account, live.sequences[0].flow)
        live.sequences = ()  # no cycle is left, so memory comes free without a collector
        self._count(move)
        self.drain_rate.record(now)
        self._work.events.append(event)

    def unpark(self, live: LiveRequest) -> None:
        """Let the sequences queue that waited for the prompt of the first."""
        for sequence in live.parked:
            live.account.queue.push(sequence)
        live.parked = []

    def _end_sequence(self, sequence: Sequence, move: Move, now: float) -> None:
        """Take a sequence out of its container and free its blocks."""
        work, account = self._work, sequence.account
        if sequence.state is State.RUNNING:
            self._leave_slot(sequence)
        else:
            self._leave_queue(sequence)
        if move is not Move.FAIL:
            work.memory.register(sequence)  # what it computed may be the beginning of the next turn
        account.num_live_sequences -= 1
        account.num_life_blocks -= work.memory.pool.blocks_for(sequence.max_positions)
        work.memory.forget(sequence)
        if sequence.is_introduced:
            work.released.append(sequence.sequence_id)
        sequence.move(move, now)

    def _leave_slot(self, sequence: Sequence) -> None:
        work = self._work
        work.leave(sequence)
        if self._is_static:  # its slot is computed, to no use, until the last member ends
            work.num_ghosts = work.num_ghosts + 1 if work.running else 0

    def _leave_queue(self, sequence: Sequence) -> None:
        account, parked = sequence.account, sequence.parent.parked
        if sequence in parked:
            parked.remove(sequence)
        else:
            account.queue.remove(sequence)
            account.hold.discard(sequence.sequence_id)
        if sequence.state is State.PREEMPTED:
            self._work.num_preempted -= 1
        else:
            account.num_waiting_sequences -= 1
            account.num_waiting_tokens -= sequence.num_prompt_tokens

    def _count(self, move: Move) -> None:
        counters = self._work.counters
        match move:
            case Move.FINISH:
                counters.finished += 1
            case Move.FAIL:
                counters.failed += 1
            case Move.CANCEL:
                counters.cancelled += 1
            case Move.EXPIRE:
                counters.expired += 1


def _leave_flow(account: ClassAccount, flow: Flow) -> None:
    flow.num_live -= 1
    if flow.num_live == 0 and len(account.flows) > _MAX_IDLE_FLOWS:
        del account.flows[flow.tenant]
