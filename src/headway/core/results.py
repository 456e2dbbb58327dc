"""What the result of a step changes: tokens arrive, sequences end, blocks become shareable."""

from __future__ import annotations

from headway.core.commit import InFlightStep
from headway.core.endings import Endings
from headway.core.events import Failed, FinishReason, PromptScored, TokenReady
from headway.core.lifecycle import Move, State
from headway.core.plan import PromptLogprobs, SampledToken, Slice, StepResult
from headway.core.queues import FairQueue
from headway.core.sequence import Sequence
from headway.core.work import Work

_new = tuple.__new__  # half the time of the constructor of a named tuple


class Results:
    """Applies the results of steps.

    Attributes:
        charges_tenants: whether it is counted what each tenant gets.
    """

    def __init__(self, work: Work, endings: Endings) -> None:
        self._work = work
        accounts = work.accounts.values()
        self.charges_tenants = any(isinstance(a.queue, FairQueue) for a in accounts)
        work.lockstep.charges_tenants = self.charges_tenants
        self._endings = endings

    def apply(self, step: InFlightStep, result: StepResult, now: float) -> None:
        """Take over what came of a step; results for ended work are ignored."""
        if result.is_lost:
            self._work.released += step.released
            self._lose_swapped(step, result, now)
        if step.in_lockstep:
            self.advance(1, now, step.in_lockstep)
        self._apply_decodes(step, result, now)
        for sequence, part in step.chunks:
            if sequence.is_live and not self._has_failed(sequence, part.sample, result, now):
                self._apply_chunk(sequence, part, step, result, now)

    def advance(self, num_steps: int, now: float, order: list[Sequence] | None = None) -> None:
        """Have those in lockstep take steps, the last of which ends now; end who is complete.

        ``order`` is that of the slices which these steps have none of, if not that of decoding.
        """
        ended = self._work.lockstep.advance(num_steps)
        if order is not None and len(ended) > 1:
            ended.sort(key=order.index)
        for sequence in ended:
            self.end_if_complete(sequence, sequence.output_token_ids[-1], now)

    def _lose_swapped(self, step: InFlightStep, result: StepResult, now: float) -> None:
        """What a lost step moved to the swap space may not have arrived there."""
        for sequence in step.swapped:
            if sequence.state is State.PREEMPTED:
                self._work.memory.forget(sequence)
            elif sequence.is_live:  # a later plan counts on it already
                message = f"its keys and values were lost in step {result.step_id}"
                event = Failed(sequence.request_id, message)
                self._endings.end_request(sequence.parent, Move.FAIL, event, now)

    def _apply_decodes(self, step: InFlightStep, result: StepResult, now: float) -> None:
        """Append one token each: the innermost loop, so it is written out."""
        get_token, failures, stale = result.tokens.get, result.failures, step.stale
        add_event, charges_tenants = self._work.events.append, self.charges_tenants
        for account, number in step.decodes_by_class:
            account.service.num_output_tokens += number
        for sequence in step.decodes:
            if not sequence.is_live:
                sequence.account.service.num_output_tokens -= 1
                continue
            sequence_id = sequence.sequence_id
            token = get_token(sequence_id)
            if token is None or (failures and sequence_id in failures):
                sequence.account.service.num_output_tokens -= 1
                self._has_failed(sequence, True, result, now)
                continue
            if not stale or sequence_id not in stale:
                sequence.num_computed_tokens += 1
            token_id = token.token_id
            outputs = sequence.output_token_ids
            outputs.append(token_id)
            if charges_tenants:
                sequence.service.num_output_tokens += 1
            add_event(_new(TokenReady, (sequence.request_id, sequence.index, token)))
            if len(outputs) >= sequence.max_tokens or token_id in sequence.stop_token_ids:
                self.end_if_complete(sequence, token.token_id, now)

    def _apply_chunk(
        self, sequence: Sequence, part: Slice, step: InFlightStep, result: StepResult, now: float
    ) -> None:
        end = part.start + part.count
        if sequence.sequence_id not in step.stale:
            sequence.num_computed_tokens = end
            self._share(sequence)  # before it can end: others may want its prompt all the more
        self._report_prompt(sequence, result.prompt_logprobs.get(sequence.sequence_id))
        if part.sample:
            self._append_token(sequence, result.tokens[sequence.sequence_id], now)
        elif sequence.is_prompt_only and end == sequence.num_prompt_tokens:
            self._endings.finish_sequence(sequence, FinishReason.LENGTH, None, now)

    def _share(self, sequence: Sequence) -> None:
        """Offer complete blocks to others, and the prompt to the siblings."""
        if sequence.num_computed_tokens >= sequence.register_at:
            self._work.memory.register(sequence)
        live = sequence.parent
        if live.parked and sequence.num_computed_tokens >= sequence.num_prompt_tokens:
            self._endings.unpark(live)

    def _append_token(self, sequence: Sequence, token: SampledToken, now: float) -> None:
        sequence.output_token_ids.append(token.token_id)
        if sequence.first_token_at is None:
            sequence.first_token_at = now
        sequence.service.num_output_tokens += 1
        sequence.account.service.num_output_tokens += 1
        self._work.events.append(TokenReady(sequence.request_id, sequence.index, token))
        self.end_if_complete(sequence, token.token_id, now)

    def end_if_complete(self, sequence: Sequence, token_id: int, now: float) -> None:
        """End a sequence whose latest token is a stop token, or the last that it may have."""
        num_outputs = len(sequence.output_token_ids)
        is_stop = token_id in sequence.stop_token_ids
        if is_stop and num_outputs > sequence.min_tokens:
            self._endings.finish_sequence(sequence, FinishReason.STOP, token_id, now)
        elif num_outputs >= sequence.max_tokens:
            self._endings.finish_sequence(sequence, FinishReason.LENGTH, None, now)

    def _has_failed(self, sequence: Sequence, sample: bool, result: StepResult, now: float) -> bool:
        sequence_id, request_id = sequence.sequence_id, sequence.request_id
        failure = result.failures.get(sequence_id)
        if failure is None and sample and sequence_id not in result.tokens:
            failure = f"step {result.step_id} gave no token for sequence {sequence_id}"
        if failure is None:
            return False
        event = Failed(request_id, failure)
        self._endings.end_request(sequence.parent, Move.FAIL, event, now)
        return True

    def _report_prompt(self, sequence: Sequence, scored: PromptLogprobs | None) -> None:
        """Pass prompt log-probabilities on; recomputation after preemption repeats none."""
        if scored is None:
            return
        num_known = max(sequence.num_prompt_scored - scored.start, 0)
        entries = scored.entries[num_known:]
        if entries:
            start = scored.start + num_known
            sequence.num_prompt_scored = start + len(entries)
            logprobs = PromptLogprobs(start, entries)
            event = PromptScored(sequence.request_id, sequence.index, logprobs)
            self._work.events.append(event)
