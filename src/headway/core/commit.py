"""Turns a draft into a plan: from here on its tokens count as scheduled."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.draft import StepDraft
from headway.core.events import Event
from headway.core.plan import NewSequence, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class InFlightSlice:
    """A slice whose result is not known yet. ``epoch`` tells whether its KV is still there."""

    sequence: Sequence
    start: int
    end: int
    sample: bool
    epoch: int


def commit(
    draft: StepDraft, step_id: int, released: tuple[SequenceId, ...], events: tuple[Event, ...]
) -> tuple[StepPlan, tuple[InFlightSlice, ...]]:
    """Return the plan of a draft, and what is in flight while nobody has answered it."""
    sequences = draft.sequences.values()
    new_sequences = tuple(_introduce(s) for s in sequences if not s.is_introduced)
    table_updates = tuple(
        _update_table(s) for s in sequences if len(s.block_ids) > s.num_blocks_sent
    )
    slices = tuple(
        _schedule_tokens(sequence, draft.counts[sequence_id])
        for sequence_id, sequence in draft.sequences.items()
    )
    in_flight = tuple(map(_in_flight, sequences, slices))
    return StepPlan(step_id, slices, new_sequences, table_updates, released, events), in_flight


def _introduce(sequence: Sequence) -> NewSequence:
    sequence.is_introduced = True
    request = sequence.parent.request
    return NewSequence(
        sequence.sequence_id,
        request.request_id,
        sequence.index,
        request.prompt_token_ids,
        request.sampling,
    )


def _update_table(sequence: Sequence) -> TableUpdate:
    first_index = sequence.num_blocks_sent
    sequence.num_blocks_sent = len(sequence.block_ids)
    return TableUpdate(sequence.sequence_id, first_index, tuple(sequence.block_ids[first_index:]))


def _schedule_tokens(sequence: Sequence, count: int) -> Slice:
    start = sequence.num_scheduled_tokens
    sequence.num_scheduled_tokens += count
    is_last = sequence.num_scheduled_tokens == sequence.num_tokens
    sample = is_last and sequence.wants_token
    if sample:
        sequence.num_pending_tokens += 1
    return Slice(sequence.sequence_id, start, count, sample)


def _in_flight(sequence: Sequence, part: Slice) -> InFlightSlice:
    end = part.start + part.count
    return InFlightSlice(sequence, part.start, end, part.sample, sequence.num_preemptions)
