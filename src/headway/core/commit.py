"""Turns a draft into a plan: from here on its tokens count as scheduled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from headway.core.accounts import ClassAccount
from headway.core.costs import StepFeatures
from headway.core.draft import StepDraft
from headway.core.events import Event
from headway.core.plan import BlockMove, NewSequence, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sequence import Sequence

_new = tuple.__new__  # half the time of the constructor of a named tuple


@dataclass(slots=True)
class InFlightStep:
    """What is in flight while nobody has answered a plan.

    Attributes:
        decodes: sequences of one position each, all of which sample.
        chunks: the other slices.
        features: what the step's time depends on.
        decodes_by_class: how many of the decodes each class has.
        released: sequences that the executor shall forget.
        swapped: sequences that it moves to the swap space.
        stale: sequences whose KV is gone since; results from before count no position as computed.
        in_lockstep: further decodes, which no slice is of.
    """

    decodes: list[Sequence]
    chunks: list[tuple[Sequence, Slice]]
    features: StepFeatures
    decodes_by_class: list[tuple[ClassAccount, int]]
    released: tuple[SequenceId, ...] = ()
    swapped: list[Sequence] = field(default_factory=list)
    stale: set[SequenceId] = field(default_factory=set)
    in_lockstep: list[Sequence] = field(default_factory=list)


def commit(
    draft: StepDraft,
    accounts: Collection[ClassAccount],
    released: tuple[SequenceId, ...],
    swap_out: tuple[BlockMove, ...],
    events: tuple[Event, ...],
    *,
    members: Collection[Sequence] = (),
) -> tuple[StepPlan, InFlightStep]:
    """Return the plan of a draft, and what is in flight from now on.

    Of decodes that are ``members`` of the lockstep the plan has no slices.
    """
    decodes, in_lockstep = _divide(draft.decodes, members)
    slices = _decode_slices(decodes)
    grown = draft.grown
    new_sequences: tuple[NewSequence, ...] = ()
    chunks: list[tuple[Sequence, Slice]] = []
    if draft.chunks:  # in most steps there are none
        begun = [sequence for sequence, _ in draft.chunks.values()]
        new_sequences = tuple([_introduce(s) for s in begun if not s.is_introduced])
        grown = grown + begun
        chunks = [(s, _schedule_tokens(s, count)) for s, count in draft.chunks.values()]
        slices += [part for _, part in chunks]
    table_updates = tuple(update_tables(grown)) if grown else ()
    plan = StepPlan(
        draft.step_id,
        tuple(slices),
        new_sequences,
        table_updates,
        released,
        swap_out,
        tuple(draft.copies),
        tuple(draft.swap_in),
        draft.padding,
        events,
    )
    return plan, InFlightStep(
        decodes,
        chunks,
        _features(draft, plan),
        _by_class(draft.decodes, accounts),
        released,
        in_lockstep=in_lockstep,
    )


def _divide(
    decodes: list[Sequence], members: Collection[Sequence]
) -> tuple[list[Sequence], list[Sequence]]:
    """Return those that are no members of the lockstep, and those that are, in their order."""
    if not members:
        return decodes, []
    if len(members) == len(decodes):
        return [], decodes
    return [s for s in decodes if s not in members], [s for s in decodes if s in members]


def _by_class(
    decodes: list[Sequence], accounts: Collection[ClassAccount]
) -> list[tuple[ClassAccount, int]]:
    counts = [(account, account.num_decoding) for account in accounts if account.num_decoding]
    if sum([number for _, number in counts]) == len(decodes):  # all that decode are in the step
        return counts
    return list(Counter([sequence.account for sequence in decodes]).items())


def _features(draft: StepDraft, plan: StepPlan) -> StepFeatures:
    if plan.padding is not None:
        return StepFeatures.of_plan(plan)
    num_single = sum(count == 1 for _, count in draft.chunks.values()) if draft.chunks else 0
    return StepFeatures(
        draft.num_chunk_tokens - num_single,
        len(draft.decodes) + num_single,
        len(plan.swap_out) + len(plan.swap_in),
    )


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


def update_tables(sequences: Iterable[Sequence]) -> Iterable[TableUpdate]:
    """Yield how the block tables have grown since the executor was told."""
    for sequence in sequences:
        first_index, block_ids = sequence.num_blocks_sent, sequence.block_ids
        if len(block_ids) > first_index:
            sequence.num_blocks_sent = len(block_ids)
            yield TableUpdate(sequence.sequence_id, first_index, tuple(block_ids[first_index:]))


def _decode_slices(sequences: list[Sequence]) -> list[Slice]:
    """Schedule one position each: the innermost loop, so it is written out."""
    slices: list[Slice] = []
    for sequence in sequences:
        start = sequence.num_scheduled_tokens
        sequence.num_scheduled_tokens = start + 1
        sequence.num_tokens += 1
        slices.append(_new(Slice, (sequence.sequence_id, start, 1, True)))
    return slices


def _schedule_tokens(sequence: Sequence, count: int) -> Slice:
    start = sequence.num_scheduled_tokens
    sequence.num_scheduled_tokens += count
    is_last = sequence.num_scheduled_tokens == sequence.num_tokens
    sample = is_last and sequence.wants_token
    sequence.num_tokens += sample
    return Slice(sequence.sequence_id, start, count, sample)
