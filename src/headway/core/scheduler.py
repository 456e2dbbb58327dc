"""The scheduler: facts in, plans out. See ``docs/design/scheduler.md`` for the reasons.

A step shares out a token budget. Running sequences come first: those that need one token (decode),
then those inside a prefill; what is left admits waiting work in the policy's order. When blocks
run out, the policy names a victim, which keeps its place in the queue and recomputes later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core import events as ev
from headway.core import invariants
from headway.core.blocks import BlockPool
from headway.core.commit import InFlightSlice, commit
from headway.core.deadlines import Deadlines
from headway.core.draft import StepDraft
from headway.core.drain_rate import DrainRate
from headway.core.lifecycle import Move, State
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, SequenceId, StepPlan, StepResult
from headway.core.policy import FirstComeFirstServed, Policy
from headway.core.request import Request
from headway.core.sequence import LiveRequest, Sequence
from headway.core.statistics import Statistics
from headway.core.waiting import WaitingQueue
from headway.errors import InvariantError


@dataclass(slots=True)
class Counters:
    """How many requests came and how each ended; how often work moved."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    rejected: int = 0
    preemptions: int = 0
    resumed: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Work:
    """All mutable containers of the scheduler; each live sequence is in exactly one of them."""

    waiting: WaitingQueue
    running: dict[SequenceId, Sequence] = field(default_factory=dict)  # in order of admission
    requests: dict[RequestId, LiveRequest] = field(default_factory=dict)
    in_flight: dict[int, tuple[InFlightSlice, ...]] = field(default_factory=dict)


class Scheduler:
    """Decides who waits, how long, and who goes first. Pure: no clock, no chance, no I/O.

    ``now`` is in seconds and never runs backwards. No method raises for load or for bad requests;
    an exception is a bug of the caller or of Headway.
    """

    def __init__(self, limits: SchedulerLimits, policy: Policy | None = None) -> None:
        self.limits = limits
        self.policy = policy or FirstComeFirstServed()
        self.pool = BlockPool(limits.num_blocks, limits.block_size)
        self.counters = Counters()
        self.work = _Work(WaitingQueue(self.policy.order))
        self._deadlines = Deadlines()
        self._drain_rate = DrainRate()
        self._released: list[SequenceId] = []
        self._events: list[ev.Event] = []  # of the call that is being served
        self._next_sequence_id = 0
        self._num_waiting_requests = 0
        self._num_waiting_sequences = 0
        self._num_waiting_tokens = 0
        self._num_preempted = 0

    # ---------------------------------------------------------------- stimuli

    def submit(self, request: Request, now: float) -> ev.Admitted | ev.Rejected:
        """Take a request in, or refuse it with a reason. Refusal is its terminal event."""
        self.counters.submitted += 1
        refusal = self._refusal(request, now)
        if refusal is not None:
            self.counters.rejected += 1
            return refusal
        live = LiveRequest(request, self._next_sequence_id, now)
        self._next_sequence_id += request.n
        self.work.requests[request.request_id] = live
        self._num_waiting_requests += 1
        self._num_waiting_sequences += request.n
        self._num_waiting_tokens += request.n * len(request.prompt_token_ids)
        self._deadlines.watch(live, len(self.work.requests))
        for sequence in live.sequences:
            self.work.waiting.push(sequence)
        return ev.Admitted(request.request_id, tuple(s.sequence_id for s in live.sequences))

    def cancel(self, request_id: RequestId, now: float, reason: str) -> tuple[ev.Event, ...]:
        """End a request: out of its container, blocks freed, chunks dropped, all in this call.

        Unknown and ended requests are ignored, since a client may leave at any moment.
        """
        live = self.work.requests.get(request_id)
        if live is not None:
            self._end_request(live, Move.CANCEL, ev.Cancelled(request_id, reason), now)
        return self._take_events()

    def stop(self, request_id: RequestId, index: int, now: float) -> tuple[ev.Event, ...]:
        """End one sequence well: the text layer found a stop string in it.

        Ended requests and sequences are ignored.

        Raises:
            InvariantError: the request never had such a sequence.
        """
        live = self.work.requests.get(request_id)
        if live is None:
            return ()
        if not 0 <= index < len(live.sequences):
            raise InvariantError(f"request {request_id} has no sequence {index}")
        if live.sequences[index].is_live:
            self._finish_sequence(live.sequences[index], ev.FinishReason.STOP, None, now)
        return self._take_events()

    def schedule(self, now: float) -> StepPlan | Idle:
        """Plan the next step. Idle when there is nothing to compute before a result or stimulus.

        Raises:
            InvariantError: more than ``max_plans_in_flight`` plans would be unanswered.
        """
        if len(self.work.in_flight) >= self.limits.max_plans_in_flight:
            raise InvariantError(f"{len(self.work.in_flight)} plans are in flight already")
        self._expire(now)
        draft = StepDraft(self.limits.max_num_batched_tokens)
        self._plan_running(draft, now)
        self._admit(draft, now)
        if not draft.sequences:
            return Idle(self._deadlines.next(), self._take_events())
        return self._commit(draft)

    def apply(self, result: StepResult, now: float) -> tuple[ev.Event, ...]:
        """Take the result of the oldest plan in flight. Results for ended work are ignored.

        Raises:
            InvariantError: the result is not that of the oldest plan in flight.
        """
        oldest = next(iter(self.work.in_flight), None)
        if result.step_id != oldest:
            raise InvariantError(f"result of step {result.step_id}, expected {oldest}")
        for part in self.work.in_flight.pop(result.step_id):
            if part.sequence.is_live:
                self._apply_slice(part, result, now)
        return self._take_events()

    # ---------------------------------------------------------------- views

    def statistics(self) -> Statistics:
        """Return a frozen snapshot."""
        counters = self.counters
        return Statistics(
            num_waiting=self._num_waiting_requests,
            num_waiting_sequences=self._num_waiting_sequences,
            num_preempted=self._num_preempted,
            num_running=len(self.work.running),
            num_waiting_tokens=self._num_waiting_tokens,
            num_blocks=self.pool.num_blocks,
            num_free_blocks=self.pool.num_free,
            block_size=self.pool.block_size,
            num_live=len(self.work.requests),
            num_submitted=counters.submitted,
            num_finished=counters.finished,
            num_failed=counters.failed,
            num_cancelled=counters.cancelled,
            num_expired=counters.expired,
            num_rejected=counters.rejected,
            num_preemptions=counters.preemptions,
            num_resumed=counters.resumed,
            num_steps=counters.steps,
        )

    def check(self) -> None:
        """Check every invariant.

        Raises:
            InvariantError: one does not hold; the message has the story of the request.
        """
        invariants.check(self)

    # ---------------------------------------------------------------- admission

    def _refusal(self, request: Request, now: float) -> ev.Rejected | None:
        if request.request_id in self.work.requests:
            return ev.Rejected(
                request.request_id,
                ev.RejectReason.DUPLICATE,
                f"A request with id {request.request_id} is live.",
            )
        return self.limits.refusal(request) or self._queue_refusal(request, now)

    def _queue_refusal(self, request: Request, now: float) -> ev.Rejected | None:
        limits, num_waiting = self.limits, self._num_waiting_sequences
        most = limits.max_queue_requests
        if most is not None and num_waiting >= most + self._num_startable():
            message = (
                f"The queue is full: {len(self.work.running)} sequences run, {num_waiting} wait, "
                f"and {most} may."
            )
            return self._queue_full(request, message, now)
        num_tokens = self._num_waiting_tokens + request.n * len(request.prompt_token_ids)
        most = limits.max_queue_tokens
        if most is not None and num_waiting > 0 and num_tokens > most:
            message = (
                f"The queue is full: it would hold {num_tokens} prompt tokens, and {most} may wait."
            )
            return self._queue_full(request, message, now)
        return None

    def _num_startable(self) -> int:
        """Return how many waiting sequences only wait for the next step.

        Those are the free slots, or none while the head of the queue waits for blocks.
        """
        head = self.work.waiting.peek()
        if head is not None and not self._has_room(self._num_owed() + self._num_whole(head)):
            return 0
        return max(self.limits.max_num_seqs - len(self.work.running), 0)

    def _queue_full(self, request: Request, message: str, now: float) -> ev.Rejected:
        retry_after_s = self._drain_rate.retry_after_s(self._num_waiting_sequences, now)
        return ev.Rejected(request.request_id, ev.RejectReason.QUEUE_FULL, message, retry_after_s)

    # ---------------------------------------------------------------- planning

    def _plan_running(self, draft: StepDraft, now: float) -> None:
        """Share the budget among running sequences, decodes first."""
        running = list(self.work.running.values())
        for sequence in running:
            if sequence.num_remaining_tokens == 1:
                self._plan_one(draft, sequence, now)
        for sequence in running:
            if sequence.num_remaining_tokens > 1:
                self._plan_one(draft, sequence, now)

    def _plan_one(self, draft: StepDraft, sequence: Sequence, now: float) -> None:
        count = self._slice_length(draft, sequence)
        if (
            count > 0
            and sequence.state is State.RUNNING
            and self._grow(draft, sequence, count, now)
        ):
            draft.add(sequence, count)

    def _slice_length(self, draft: StepDraft, sequence: Sequence) -> int:
        """Return how many tokens of the budget the sequence can use; 0 is "not in this step"."""
        remaining = sequence.num_remaining_tokens
        if not self.limits.enable_chunked_prefill:
            return remaining if remaining <= draft.budget else 0
        longest = self.limits.max_prefill_chunk_tokens or draft.budget
        return min(remaining, draft.budget, longest)

    def _grow(self, draft: StepDraft, sequence: Sequence, count: int, now: float) -> bool:
        """Get blocks for the next ``count`` positions, by preemption if need be.

        Returns False when the sequence itself was the victim.
        """
        missing = self._num_missing_blocks(sequence, sequence.num_scheduled_tokens + count)
        while missing > self.pool.num_free:
            victim = self.policy.victim(self.work.running)
            self._preempt(draft, victim, now)
            if victim is sequence:
                return False
        sequence.block_ids += self.pool.allocate(missing)
        return True

    def _num_missing_blocks(self, sequence: Sequence, num_positions: int) -> int:
        return max(self.pool.blocks_for(num_positions) - len(sequence.block_ids), 0)

    def _preempt(self, draft: StepDraft, victim: Sequence, now: float) -> None:
        """Take a sequence off its slot and blocks; it keeps its place and its tokens."""
        draft.withdraw(victim)
        del self.work.running[victim.sequence_id]
        num_lost = victim.num_computed_tokens
        self.pool.release(victim.forget_kv())
        victim.num_preemptions += 1
        victim.move(Move.PREEMPT, now)
        self.work.waiting.push(victim)
        self._num_preempted += 1
        self.counters.preemptions += 1
        self._events.append(ev.Preempted(victim.parent.request.request_id, victim.index, num_lost))

    def _admit(self, draft: StepDraft, now: float) -> None:
        """Start or resume waiting sequences, in order, while slots, budget and blocks last.

        A step that had to preempt admits nobody: the blocks are needed by those who run.
        """
        if draft.has_preempted or not self.work.waiting:
            return
        num_owed = self._num_owed()
        while draft.budget > 0 and len(self.work.running) < self.limits.max_num_seqs:
            sequence = self.work.waiting.peek()
            if sequence is None:
                return
            num_needed = self._num_whole(sequence)
            count = self._slice_length(draft, sequence)
            if count == 0 or not self._has_room(num_owed + num_needed):
                return
            self._start(sequence, now)
            sequence.block_ids = self.pool.allocate(self.pool.blocks_for(count))
            num_owed += num_needed - len(sequence.block_ids)
            draft.add(sequence, count)

    def _num_owed(self) -> int:
        """Return the blocks that running sequences lack for the tokens they have."""
        running = self.work.running.values()
        return sum(self._num_missing_blocks(s, s.num_known_positions) for s in running)

    def _num_whole(self, sequence: Sequence) -> int:
        """Return the blocks of all tokens that a sequence has."""
        return self.pool.blocks_for(sequence.num_known_positions)

    def _has_room(self, num_blocks: int) -> bool:
        """Whether that many blocks are free, the whole sequence and what others lack included.

        Sequences that were started only in part could otherwise block each other, or be preempted
        before they made progress. Alone, a sequence may use the last block.
        """
        watermark = self.limits.watermark_blocks if self.work.running else 0
        return num_blocks + watermark <= self.pool.num_free

    def _start(self, sequence: Sequence, now: float) -> None:
        self.work.waiting.remove(sequence)
        self.work.running[sequence.sequence_id] = sequence
        live = sequence.parent
        request_id = live.request.request_id
        if sequence.state is State.PREEMPTED:
            sequence.move(Move.RESUME, now)
            self._num_preempted -= 1
            self.counters.resumed += 1
            self._events.append(ev.Resumed(request_id, sequence.index))
            return
        if live.state is State.WAITING:
            self._num_waiting_requests -= 1
            live.move(Move.START, now)
        self._leave_queue(sequence)
        sequence.move(Move.START, now)
        queued_s = now - live.submitted_at
        self._events.append(ev.Started(request_id, sequence.index, queued_s))

    def _commit(self, draft: StepDraft) -> StepPlan:
        step_id = self.counters.steps
        self.counters.steps += 1
        released, self._released = tuple(self._released), []
        plan, in_flight = commit(draft, step_id, released, self._take_events())
        self.work.in_flight[step_id] = in_flight
        return plan

    # ---------------------------------------------------------------- results

    def _apply_slice(self, part: InFlightSlice, result: StepResult, now: float) -> None:
        sequence = part.sequence
        request_id = sequence.parent.request.request_id
        failure = result.failures.get(sequence.sequence_id)
        if failure is None and part.sample and sequence.sequence_id not in result.tokens:
            failure = f"step {result.step_id} gave no token for sequence {sequence.sequence_id}"
        if failure is not None:
            self._end_request(sequence.parent, Move.FAIL, ev.Failed(request_id, failure), now)
            return
        if part.epoch == sequence.num_preemptions:
            sequence.num_computed_tokens = part.end
        self._report_prompt(sequence, result)
        if part.sample:
            self._append_token(sequence, result, now)
        elif sequence.is_prompt_only and part.end == sequence.num_prompt_tokens:
            self._finish_sequence(sequence, ev.FinishReason.LENGTH, None, now)

    def _report_prompt(self, sequence: Sequence, result: StepResult) -> None:
        """Pass prompt log-probabilities on; recomputation after preemption repeats none."""
        scored = result.prompt_logprobs.get(sequence.sequence_id)
        if scored is None:
            return
        num_known = max(sequence.num_prompt_scored - scored.start, 0)
        entries = scored.entries[num_known:]
        if entries:
            start = scored.start + num_known
            sequence.num_prompt_scored = start + len(entries)
            self._events.append(
                ev.PromptScored(
                    sequence.parent.request.request_id,
                    sequence.index,
                    type(scored)(start, entries),
                )
            )

    def _append_token(self, sequence: Sequence, result: StepResult, now: float) -> None:
        token = result.tokens[sequence.sequence_id]
        sampling = sequence.parent.request.sampling
        sequence.num_pending_tokens -= 1
        sequence.output_token_ids.append(token.token_id)
        self._events.append(
            ev.TokenReady(sequence.parent.request.request_id, sequence.index, token)
        )
        num_outputs = len(sequence.output_token_ids)
        if token.token_id in sampling.stop_token_ids and num_outputs > sampling.min_tokens:
            self._finish_sequence(sequence, ev.FinishReason.STOP, token.token_id, now)
        elif num_outputs >= sampling.max_tokens:
            self._finish_sequence(sequence, ev.FinishReason.LENGTH, None, now)

    # ---------------------------------------------------------------- endings

    def _expire(self, now: float) -> None:
        for live, reason in self._deadlines.pop_passed(now):
            waited_s = now - live.submitted_at
            event = ev.Expired(live.request.request_id, reason, waited_s)
            self._end_request(live, Move.EXPIRE, event, now)

    def _finish_sequence(
        self, sequence: Sequence, reason: ev.FinishReason, stop_token_id: int | None, now: float
    ) -> None:
        live = sequence.parent
        request_id = live.request.request_id
        self._end_sequence(sequence, Move.FINISH, now)
        self._events.append(ev.SequenceFinished(request_id, sequence.index, reason, stop_token_id))
        if live.num_live_sequences == 0:
            self._end_request(live, Move.FINISH, ev.Finished(request_id), now)

    def _end_request(self, live: LiveRequest, move: Move, event: ev.Event, now: float) -> None:
        """The one way out: every terminal event passes here, once a request."""
        for sequence in live.sequences:
            if sequence.is_live:
                self._end_sequence(sequence, move, now)
        self._num_waiting_requests -= live.state is State.WAITING
        live.move(move, now)
        del self.work.requests[live.request.request_id]
        self._count_ending(move)
        self._drain_rate.record(now)
        self._events.append(event)

    def _end_sequence(self, sequence: Sequence, move: Move, now: float) -> None:
        """Take a sequence out of its container and free its blocks."""
        if sequence.state is State.RUNNING:
            del self.work.running[sequence.sequence_id]
        else:
            self.work.waiting.remove(sequence)
            if sequence.state is State.PREEMPTED:
                self._num_preempted -= 1
            else:
                self._leave_queue(sequence)
        self.pool.release(sequence.forget_kv())
        if sequence.is_introduced:
            self._released.append(sequence.sequence_id)
        sequence.move(move, now)

    def _count_ending(self, move: Move) -> None:
        match move:
            case Move.FINISH:
                self.counters.finished += 1
            case Move.FAIL:
                self.counters.failed += 1
            case Move.CANCEL:
                self.counters.cancelled += 1
            case Move.EXPIRE:
                self.counters.expired += 1

    def _leave_queue(self, sequence: Sequence) -> None:
        self._num_waiting_sequences -= 1
        self._num_waiting_tokens -= sequence.num_prompt_tokens

    def _take_events(self) -> tuple[ev.Event, ...]:
        events, self._events = tuple(self._events), []
        return events
