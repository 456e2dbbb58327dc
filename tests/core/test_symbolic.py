"""The symbolic executor notices each kind of mistake, and complains of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core.events import Preempted, PreemptionMode
from headway.core.limits import Batching, SchedulerLimits
from headway.core.plan import (
    BlockMove,
    NewSequence,
    Padding,
    RequestId,
    SequenceId,
    Slice,
    StepPlan,
    TableUpdate,
)
from headway.core.sampling import SamplingParams
from headway.errors import InvariantError
from headway.testing.symbolic import LostStepError, SymbolicExecutor
from headway.testing.symbols import Draws, answer

LIMITS = SchedulerLimits(
    num_blocks=8,
    block_size=2,
    max_model_len=12,
    max_num_seqs=3,
    max_num_batched_tokens=10,
    num_swap_blocks=4,
)
PROMPT = (5, 6, 7, 8, 9)
FIRST, SECOND = SequenceId(0), SequenceId(1)


def new(number: int, prompt: tuple[int, ...] = PROMPT, **sampling: int) -> NewSequence:
    params = SamplingParams(max_tokens=4, **sampling)  # type: ignore[arg-type]  # all are numbers
    return NewSequence(SequenceId(number), RequestId(f"r{number}"), 0, prompt, params)


def table(number: int, *block_ids: int, at: int = 0) -> TableUpdate:
    return TableUpdate(SequenceId(number), at, block_ids)


def part(number: int, start: int, count: int, *, sample: bool) -> Slice:
    return Slice(SequenceId(number), start, count, sample)


def prefill(executor: SymbolicExecutor, number: int, *block_ids: int, step: int = 0) -> int:
    """Compute the whole prompt of a new sequence and return its token."""
    plan = StepPlan(
        step,
        (part(number, 0, 5, sample=True),),
        new_sequences=(new(number),),
        table_updates=(table(number, *block_ids),),
    )
    return executor.run(plan).tokens[SequenceId(number)].token_id


@pytest.fixture
def executor() -> SymbolicExecutor:
    return SymbolicExecutor(LIMITS)


def decode(step: int, number: int, start: int, *updates: TableUpdate) -> StepPlan:
    return StepPlan(step, (part(number, start, 1, sample=True),), table_updates=updates)


def test_a_sequence_gets_its_answer(executor: SymbolicExecutor) -> None:
    tokens = [prefill(executor, 0, 4, 2, 7)]
    for step, update in enumerate(((), (table(0, 1, at=3),), ()), start=1):
        result = executor.run(decode(step, 0, 4 + step, *update))
        tokens.append(result.tokens[FIRST].token_id)
    assert tuple(tokens) == answer(new(0), executor.draws)


def test_answers_depend_on_seed_index_salt_and_prompt() -> None:
    draws = Draws(vocab_size=1000)
    other_index = replace(new(0), index=1)
    answers = {
        answer(new(0), draws),
        answer(new(0, seed=3), draws),
        answer(other_index, draws),
        answer(new(0), draws, "salt"),
        answer(new(0, (5, 6, 7, 8, 8)), draws),
    }
    assert len(answers) == 5
    assert answer(new(3), draws) == answer(new(0), draws), "ids must not matter"


def test_stop_tokens_come_after_min_tokens_and_end_the_answer() -> None:
    draws = Draws(vocab_size=3, stop_one_in=2)
    lengths = set()
    for token in range(400):
        sampling = SamplingParams(max_tokens=9, min_tokens=2, stop_token_ids=(1,))
        outputs = answer(replace(new(0, (token,)), sampling=sampling), draws)
        assert 1 not in outputs[:2]
        assert 1 not in outputs[:-1]
        lengths.add(len(outputs))
    assert lengths == set(range(3, 10))


def test_a_script_goes_before_chance() -> None:
    draws = Draws(script=lambda _, position: 42 if position == 1 else None)
    assert answer(new(0), draws)[1] == 42
    assert answer(new(0), draws)[0] == answer(new(0), Draws())[0]


def test_a_shared_prefix_and_a_copied_partial_block_are_right(executor: SymbolicExecutor) -> None:
    prefill(executor, 0, 0, 1, 2)
    plan = StepPlan(
        1,
        (part(1, 4, 1, sample=True),),
        new_sequences=(new(1),),
        table_updates=(table(1, 0, 1, 5),),
        copies=(BlockMove(2, 5),),
    )
    assert executor.run(plan).tokens[SECOND].token_id == answer(new(1), executor.draws)[0]


def test_swapped_blocks_come_back(executor: SymbolicExecutor) -> None:
    prefill(executor, 0, 0, 1, 2)
    moves = tuple(BlockMove(block, 3 - block) for block in (0, 1, 2))
    preempted = Preempted(RequestId("r0"), 0, 0)
    second = StepPlan(
        1,
        (part(1, 0, 5, sample=True),),
        new_sequences=(new(1),),
        table_updates=(table(1, 1, 2, 0),),
        swap_out=moves,
        events=(preempted,),
    )
    executor.run(second)
    back = tuple(BlockMove(move.target, 4 + move.source) for move in moves)
    plan = decode(2, 0, 5, table(0, 4, 5, 6))
    assert executor.run(replace(plan, swap_in=back)).tokens.keys() == {FIRST}


def test_prompt_scores_come_once_and_for_the_first_sequence_only(
    executor: SymbolicExecutor,
) -> None:
    scored = new(0, prompt_logprobs=0)
    plan = StepPlan(
        0,
        (part(0, 0, 3, sample=False),),
        new_sequences=(scored,),
        table_updates=(table(0, 0, 1),),
    )
    found = executor.run(plan).prompt_logprobs[FIRST]
    assert found.start == 1
    assert [each.token_id for each in found.entries] == [6, 7, 8]
    plan = StepPlan(1, (part(0, 3, 2, sample=True),), table_updates=(table(0, 2, at=2),))
    found = executor.run(plan).prompt_logprobs[FIRST]
    assert (found.start, len(found.entries)) == (4, 1)


def test_a_failing_sequence_writes_garbage_that_nobody_may_share(
    executor: SymbolicExecutor,
) -> None:
    prefill(executor, 0, 0, 1, 2)
    executor.fail_sequence(FIRST, "broken")
    result = executor.run(decode(1, 0, 5))
    assert result.failures == {FIRST: "broken"}
    assert not result.tokens
    plan = StepPlan(
        2,
        (part(1, 4, 1, sample=True),),
        new_sequences=(new(1, (*PROMPT[:4], 1)),),
        table_updates=(table(1, 0, 1, 5),),
    )
    executor.run(plan)  # what was written before is sound
    plan = replace(decode(3, 1, 5), released=(FIRST,), copies=(BlockMove(2, 5),))
    with pytest.raises(InvariantError, match="holds something else at position 4"):
        executor.run(plan)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_whole_step_can_fail(executor: SymbolicExecutor, at_once: bool) -> None:
    executor.fail_next_step(RuntimeError("power"), at_once=at_once)
    with pytest.raises(RuntimeError, match="power"):
        prefill(executor, 0, 0, 1, 2)
    assert len(executor) == (0 if at_once else 1)
    plan = StepPlan(
        1,
        (part(1, 4, 1, sample=True),),
        new_sequences=(new(1),),
        table_updates=(table(1, 0, 1, 2),),
        released=(FIRST,),
    )
    with pytest.raises(InvariantError, match="at position 0"):
        executor.run(plan)


def test_a_plan_on_top_of_a_lost_step_fails_for_its_sequences_only(
    executor: SymbolicExecutor,
) -> None:
    prefill(executor, 0, 0, 1, 2)
    prefill(executor, 1, 3, 4, 5, step=1)
    executor.fail_next_step(RuntimeError("power"), at_once=True)
    with pytest.raises(RuntimeError, match="power"):
        executor.run(decode(2, 0, 5))
    both = (part(0, 6, 1, sample=True), part(1, 5, 1, sample=True))
    result = executor.run(StepPlan(3, both, table_updates=(table(0, 6, at=3),)))
    assert result.failures.keys() == {FIRST}
    assert result.tokens.keys() == {SECOND}


def test_a_plan_that_names_a_sequence_of_a_lost_step_is_lost_too(
    executor: SymbolicExecutor,
) -> None:
    prefill(executor, 0, 0, 1, 2)
    executor.fail_next_step(RuntimeError("power"), at_once=True)
    with pytest.raises(RuntimeError, match="power"):
        prefill(executor, 1, 3, 4, 5, step=1)
    both = (part(0, 5, 1, sample=True), part(1, 5, 1, sample=True))
    with pytest.raises(LostStepError, match="sequence 1 is unknown"):
        executor.run(StepPlan(2, both))


@pytest.mark.parametrize("is_back_by_swap", [True, False])
def test_what_a_lost_step_swapped_out_must_be_computed_again(
    executor: SymbolicExecutor, is_back_by_swap: bool
) -> None:
    prefill(executor, 0, 0, 1, 2)
    prefill(executor, 1, 3, 4, 5, step=1)
    moves = tuple(BlockMove(block, block) for block in (0, 1, 2))
    swapped = Preempted(RequestId("r0"), 0, 0, PreemptionMode.SWAP)
    executor.fail_next_step(RuntimeError("power"), at_once=True)
    with pytest.raises(RuntimeError, match="power"):
        executor.run(replace(decode(2, 1, 5), swap_out=moves, events=(swapped,)))
    if is_back_by_swap:
        result = executor.run(replace(decode(3, 0, 5, table(0, 0, 1, 2)), swap_in=moves))
        assert result.failures.keys() == {FIRST}
    else:
        again = (part(0, 0, 6, sample=True),)
        plan = StepPlan(3, again, table_updates=(table(0, 0, 1, 2),))
        assert executor.run(plan).tokens.keys() == {FIRST}


# ---------------------------------------------------------------- mistakes


def mistakes() -> dict[str, tuple[StepPlan, str]]:
    """Plans for step 1, after the prompt of sequence 0 went to blocks 0, 1 and 2."""
    right = decode(1, 0, 5)
    second = StepPlan(
        1,
        (part(1, 0, 5, sample=True),),
        new_sequences=(new(1),),
        table_updates=(table(1, 3, 4, 5),),
    )
    half = (part(1, 4, 1, sample=True),)
    return {
        "order of steps": (replace(right, step_id=0), "after step 0"),
        "unknown sequence": (decode(1, 7, 5), "sequence 7 is unknown"),
        "known sequence": (replace(right, new_sequences=(new(0),)), "already known"),
        "no slices": (StepPlan(1, ()), "computes nothing"),
        "two slices": (replace(right, slices=right.slices * 2), "two slices"),
        "left out": (decode(1, 0, 6, table(0, 6, at=3)), "do not exist"),
        "again": (StepPlan(1, (part(0, 4, 1, sample=False),)), "5 are computed"),
        "no sampling": (StepPlan(1, (part(0, 5, 1, sample=False),)), "sample is False"),
        "early sampling": (
            replace(second, slices=(part(1, 0, 4, sample=True),)),
            "sample is True",
        ),
        "short table": (replace(second, table_updates=(table(1, 3, 4),)), "beyond its table"),
        "gap in the table": (decode(1, 0, 5, table(0, 6, at=4)), "entry 4 of 3"),
        "no such block": (decode(1, 0, 5, table(0, 8, at=3)), "block 8 is not one of 8"),
        "no such swap block": (
            replace(right, swap_out=(BlockMove(0, 4),)),
            "swap block 4 is not one of 4",
        ),
        "block twice": (decode(1, 0, 5, table(0, 1, at=3)), "twice in its table"),
        "taken block": (
            replace(second, table_updates=(table(1, 3, 4, 2),)),
            "writes block 2, which 2 tables hold",
        ),
        "copy to a taken block": (
            replace(right, copies=(BlockMove(0, 5),)),
            "block 5, which 0 tables hold",
        ),
        "two moves to one block": (
            replace(right, swap_out=(BlockMove(0, 1), BlockMove(1, 1))),
            "two moves go to block 1",
        ),
        "shared without copying": (
            replace(second, slices=half, table_updates=(table(1, 0, 1, 2),)),
            "writes block 2, which 2 tables hold",
        ),
        "never computed": (
            replace(second, slices=half, table_updates=(table(1, 0, 4, 5),)),
            "holds nothing at position 2",
        ),
        "wrong order": (
            replace(second, slices=half, table_updates=(table(1, 1, 0, 5),)),
            "holds something else at position 0",
        ),
        "another's prefix": (
            replace(
                second,
                slices=half,
                new_sequences=(new(1, (5, 6, 7, 1, 9)),),
                table_updates=(table(1, 0, 1, 5),),
            ),
            "something else at position 3",
        ),
        "shared in the step that writes it": (
            StepPlan(
                1,
                (part(1, 0, 5, sample=True), part(2, 4, 1, sample=True)),
                new_sequences=(new(1), new(2)),
                table_updates=(table(1, 3, 4, 5), table(2, 3, 4, 6)),
            ),
            "writes block 3, which 2 tables hold",
        ),
        "padding": (replace(right, padding=Padding(1, 1, 6)), "continuous step with padding"),
    }


@pytest.mark.parametrize("name", mistakes())
def test_mistakes_are_found(executor: SymbolicExecutor, name: str) -> None:
    prefill(executor, 0, 0, 1, 2)
    plan, message = mistakes()[name]
    with pytest.raises(InvariantError, match=f"step {plan.step_id}: .*{message}"):
        executor.run(plan)


def test_another_salt_is_another_content() -> None:
    executor = SymbolicExecutor(LIMITS, salt=lambda request_id: request_id)
    prefill(executor, 0, 0, 1, 2)
    plan = StepPlan(
        1,
        (part(1, 4, 1, sample=True),),
        new_sequences=(new(1),),
        table_updates=(table(1, 0, 1, 5),),
    )
    with pytest.raises(InvariantError, match="something else at position 0"):
        executor.run(plan)


def limited(limits: SchedulerLimits, padding: Padding | None, *counts: int) -> None:
    """Run one step of prompts with so many tokens each."""
    size = limits.block_size
    news = tuple(new(number, tuple(range(count))) for number, count in enumerate(counts))
    tables, taken = [], 0
    for number, count in enumerate(counts):
        num_blocks = -(-count // size)
        tables.append(table(number, *range(taken, taken + num_blocks)))
        taken += num_blocks
    slices = tuple(part(number, 0, count, sample=True) for number, count in enumerate(counts))
    SymbolicExecutor(limits).run(StepPlan(0, slices, news, tuple(tables), padding=padding))


def test_limits_of_a_step_are_kept() -> None:
    limited(LIMITS, None, 4, 5)
    with pytest.raises(InvariantError, match="11 tokens, and the budget is 10"):
        limited(LIMITS, None, 5, 6)
    with pytest.raises(InvariantError, match="4 sequences, and 3 may run"):
        limited(LIMITS, None, 1, 1, 1, 1)
    with pytest.raises(InvariantError, match="longer than 4"):
        limited(replace(LIMITS, max_prefill_chunk_tokens=4), None, 5)


def test_padding_counts() -> None:
    padded = replace(LIMITS, batching=Batching.STATIC)
    limited(padded, Padding(2, 4, 4), 4, 2)
    limited(padded, Padding(3, 3, 7), 3, 2)
    with pytest.raises(InvariantError, match="12 tokens, and the budget is 10"):
        limited(padded, Padding(3, 4, 4), 4, 2)
    with pytest.raises(InvariantError, match="4 sequences, and 3 may run"):
        limited(padded, Padding(4, 2, 4), 2, 2)
    for padding in Padding(1, 4, 4), Padding(2, 3, 4), Padding(2, 4, 3):
        with pytest.raises(InvariantError, match=r"Padding\(.*for"):
            limited(padded, padding, 4, 2)
    with pytest.raises(InvariantError, match="static step with padding None"):
        limited(padded, None, 4)


def test_chunks_are_refused_where_there_shall_be_none() -> None:
    whole = replace(LIMITS, enable_chunked_prefill=False, max_num_batched_tokens=12)
    plan = StepPlan(
        0,
        (part(0, 0, 3, sample=False),),
        new_sequences=(new(0),),
        table_updates=(table(0, 0, 1),),
    )
    SymbolicExecutor(LIMITS).run(plan)
    with pytest.raises(InvariantError, match="are a chunk"):
        SymbolicExecutor(whole).run(plan)
