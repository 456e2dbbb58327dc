"""What every executor owes the engine: blocks that are copied, swapped out and swapped in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from executor_subjects import (
    NUM_BLOCKS,
    NUM_SWAP_BLOCKS,
    VOCAB,
    Steps,
    Subject,
    new,
    part,
    sampled_alone,
    table,
)

from headway.core.plan import NewSequence, SequenceId

A, B, C = SequenceId(1), SequenceId(2), SequenceId(3)


def observed(subject: Subject, sequence_id: int, num_tokens: int) -> NewSequence:
    """A sequence whose every draw shows all log-probabilities, where there are any."""
    return new(sequence_id, num_tokens, **({"logprobs": VOCAB} if subject.scores else {}))


def test_a_branch_draws_as_if_it_had_computed_the_prompt(subject: Subject, steps: Steps) -> None:
    """Copy-on-write for n > 1: a sibling takes the first one's blocks, its last in part."""
    first = observed(subject, 1, 11)
    sibling = replace(first, sequence_id=B, index=1)
    expected = [sampled_alone(subject, each, 6) for each in (first, sibling)]
    result = steps.run([part(A, 0, 11)], [first], [table(A, 7, 8, 9, 30)])
    drawn = [[result.tokens[A], *steps.sampled(A, 11, 3)], []]
    # Block 9 holds a token of the first one's answer by now, which the sibling does not share.
    result = steps.run(
        [part(A, 14, 1), part(B, 10, 1)], [sibling], [table(B, 7, 8, 20, 21)], copies=[(9, 20)]
    )
    drawn[0].append(result.tokens[A])
    drawn[1].append(result.tokens[B])
    drawn[1] += steps.sampled(B, 11, 5)
    drawn[0] += steps.sampled(A, 15, 1)
    assert drawn == expected


@pytest.mark.parametrize("num_shared", [1, 5, 6, 7])
def test_a_copied_block_is_overwritten_from_where_prompts_part(
    subject: Subject, steps: Steps, num_shared: int
) -> None:
    first, second = observed(subject, 1, 9), observed(subject, 2, 10)
    common = first.prompt_token_ids[:num_shared]
    second = replace(second, prompt_token_ids=common + second.prompt_token_ids[num_shared:])
    expected = [sampled_alone(subject, each, 4) for each in (first, second)]
    result = steps.run([part(A, 0, 9)], [first], [table(A, 0, 1, 2)])
    drawn = [[result.tokens[A]], []]
    num_whole = num_shared // 4
    blocks = [*range(num_whole), *range(40, 44 - num_whole)]
    result = steps.run(
        [part(B, num_shared, 10 - num_shared)],
        [second],
        [table(B, *blocks)],
        copies=[(num_whole, 40)],
    )
    drawn[1] += [result.tokens[B], *steps.sampled(B, 10, 3)]
    drawn[0] += steps.sampled(A, 9, 3)
    assert drawn == expected


def test_a_copy_may_wait_for_its_slices(subject: Subject, steps: Steps) -> None:
    first, second = observed(subject, 1, 7), observed(subject, 2, 7)
    common = first.prompt_token_ids[:5]
    second = replace(second, prompt_token_ids=common + second.prompt_token_ids[5:])
    steps.run([part(A, 0, 7)], [first], [table(A, 0, 1)])
    steps.run(news=[second], tables=[table(B, 0, 2, 3)], copies=[(1, 2)])
    steps.run([part(A, 7, 1)])
    result = steps.run([part(B, 5, 2)])
    drawn = [result.tokens[B], *steps.sampled(B, 7, 3)]
    assert drawn == sampled_alone(subject, second, 4)


@pytest.mark.parametrize("prompt", [10, 12])  # the last block in part, and whole
def test_a_swapped_sequence_goes_on_without_recomputing(
    subject: Subject, steps: Steps, prompt: int
) -> None:
    sequence = observed(subject, 1, prompt)
    expected = sampled_alone(subject, sequence, 9)
    result = steps.run([part(A, 0, prompt)], [sequence], [table(A, 0, 1, 2, 3)])
    drawn = [result.tokens[A], *steps.sampled(A, prompt, 2)]
    # Another sequence takes the blocks in the same step, and keeps them.
    steps.run(
        [part(B, 0, 16)],
        [new(B, 16)],
        [table(B, 3, 2, 1, 0)],
        swap_out=[(0, 7), (1, 0), (2, 3), (3, 5)],
    )
    steps.run([part(B, 16, 1)], tables=[table(B, 10, first=4)])
    result = steps.run(
        [part(A, prompt + 2, 1), part(B, 17, 1)],
        tables=[table(A, 10 + 1, 12, 13, 14, 15)],
        swap_in=[(7, 11), (0, 12), (3, 13), (5, 14)],
    )
    drawn += [result.tokens[A], *steps.sampled(A, prompt + 3, 5)]
    assert drawn == expected


def test_a_sequence_can_be_swapped_in_the_middle_of_its_prompt(
    subject: Subject, steps: Steps
) -> None:
    sequence = observed(subject, 1, 20)
    steps.run([part(A, 0, 9, sample=False)], [sequence], [table(A, 0, 1, 2)])
    steps.run(
        [part(B, 0, 12)], [new(B, 12)], [table(B, 2, 0, 1)], swap_out=[(0, 0), (1, 1), (2, 2)]
    )
    steps.run(released=[B])
    steps.run(tables=[table(A, 2, 1, 0)], swap_in=[(0, 2), (1, 1), (2, 0)])
    result = steps.run([part(A, 9, 11)], tables=[table(A, 30, 31, 32, first=3)])
    drawn = [result.tokens[A], *steps.sampled(A, 20, 3)]
    assert drawn == sampled_alone(subject, sequence, 4)


def test_a_swap_space_can_be_filled_again_and_again(subject: Subject, steps: Steps) -> None:
    sequence = observed(subject, 1, 30)  # as many blocks as the swap space has
    drawn = [steps.run([part(A, 0, 30)], [sequence], [table(A, *range(8))]).tokens[A]]
    blocks = list(range(8))
    for turn in range(1, 4):
        steps.run([], swap_out=[*zip(blocks, range(8), strict=True)])
        steps.run(
            [part(10 + turn, 0, 32)],
            [new(10 + turn, 32)],
            [table(10 + turn, *blocks)],
        )
        blocks = [8 * turn + (5 * i + turn) % 8 for i in range(8)]
        result = steps.run(
            [part(A, 29 + turn, 1)],
            tables=[table(A, *blocks, 60)],
            swap_in=[*zip(range(8), blocks, strict=True)],
        )
        drawn.append(result.tokens[A])
        if turn < 3:  # the ninth block is not needed before position 32
            steps.run(tables=[table(A, *blocks)])
    assert drawn == sampled_alone(subject, sequence, 4)


def test_moves_of_one_step_take_effect_in_their_order(subject: Subject, steps: Steps) -> None:
    first, second = observed(subject, 1, 11), observed(subject, 2, 11)
    result = steps.run(
        [part(A, 0, 11), part(B, 0, 11)], [first, second], [table(A, 0, 1, 2), table(B, 3, 4, 5)]
    )
    drawn = [[result.tokens[A]], [result.tokens[B]]]
    result = steps.run(
        [part(A, 11, 1), part(B, 11, 1)],
        # A reads block 0 where it was swapped in, B reads its block 3 where it came by two copies.
        tables=[table(A, 7, 1, 2), table(B, 6, 4, 5)],
        swap_out=[(0, 0)],  # before block 0 is overwritten by a copy
        copies=[(3, 0), (0, 6), (3, 7)],  # one after the other
        swap_in=[(0, 7)],  # after the last copy to block 7
    )
    drawn[0].append(result.tokens[A])
    drawn[1].append(result.tokens[B])
    drawn[0] += (steps.run([part(A, 12, 1)], tables=[table(A, 8, first=3)]).tokens[A],)
    drawn[1] += (steps.run([part(B, 12, 1)], tables=[table(B, 9, first=3)]).tokens[B],)
    assert drawn == [sampled_alone(subject, each, 3) for each in (first, second)]


def test_copies_take_effect_one_after_the_other(subject: Subject, steps: Steps) -> None:
    """Blocks 0 and 1 change places by way of block 9, twice over."""
    sequence = observed(subject, 1, 8)
    drawn = [steps.run([part(A, 0, 8)], [sequence], [table(A, 0, 1)]).tokens[A]]
    change = [(0, 9), (1, 0), (9, 1)]
    result = steps.run([part(A, 8, 1)], tables=[table(A, 1, 0, 20)], copies=change)
    drawn.append(result.tokens[A])
    result = steps.run([part(A, 9, 1)], copies=[*change, *change])
    drawn.append(result.tokens[A])
    assert drawn == sampled_alone(subject, sequence, 3)


def test_a_plan_may_do_nothing_but_move(subject: Subject, steps: Steps) -> None:
    sequence = observed(subject, 1, 6)
    drawn = [steps.run([part(A, 0, 6)], [sequence], [table(A, 0, 1)]).tokens[A]]
    result = steps.run(swap_out=[(0, 0), (1, 1)])
    assert not result.tokens
    assert not result.failures
    steps.run(swap_in=[(0, 2), (1, 3)])
    steps.run(copies=[(2, 4), (3, 5)])
    drawn.append(steps.run([part(A, 6, 1)], tables=[table(A, 4, 5)]).tokens[A])
    assert drawn == sampled_alone(subject, sequence, 2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"swap_out": [(0, NUM_SWAP_BLOCKS)]}, r"swap_out: swap block 8 is not one of 8"),
        ({"swap_out": [(0, -1)]}, r"swap_out: swap block -1"),
        ({"swap_out": [(NUM_BLOCKS, 0)]}, r"swap_out: block 64 is not one of 64"),
        ({"swap_out": [(-1, 0)]}, r"swap_out: block -1"),
        ({"swap_out": [(4, 3), (5, 3)]}, r"swap_out: two blocks go to 3"),
        ({"copies": [(4, 0), (NUM_BLOCKS, 1)]}, r"copies: block 64"),
        ({"copies": [(4, 0), (5, NUM_BLOCKS)]}, r"copies: block 64"),
        ({"copies": [(-1, 0)]}, r"copies: block -1"),
        ({"copies": [(4, -1)]}, r"copies: block -1"),
        ({"swap_in": [(NUM_SWAP_BLOCKS, 0)]}, r"swap_in: swap block 8"),
        ({"swap_in": [(-1, 0)]}, r"swap_in: swap block -1"),
        ({"swap_in": [(0, 0), (1, NUM_BLOCKS)]}, r"swap_in: block 64"),
        ({"swap_in": [(0, -1)]}, r"swap_in: block -1"),
        ({"swap_in": [(0, 6), (1, 6)]}, r"swap_in: two blocks go to 6"),
        ({"slices": [part(9, 0, 1)]}, r"sequence 9"),
        ({"tables": [table(9, 3)]}, r"sequence 9"),
    ],
)
def test_a_plan_with_a_bad_move_moves_nothing(
    subject: Subject, steps: Steps, bad: dict[str, Any], message: str
) -> None:
    sequence = observed(subject, 1, 6)
    drawn = [steps.run([part(A, 0, 6)], [sequence], [table(A, 0, 1)]).tokens[A]]
    steps.run([part(B, 0, 8)], [new(B, 8)], [table(B, 4, 5)])
    steps.run(swap_out=[(0, 0), (1, 1)])
    # What is sound in the plan would spoil both the pool and the swap space.
    plan: dict[str, Any] = {
        "swap_out": [(4, 0), (5, 1)],
        "copies": [(4, 0), (5, 1)],
        "swap_in": [(0, 0)],
    }
    with pytest.raises(ValueError, match=message):
        steps.run(**{**plan, **bad})
    drawn += steps.sampled(A, 6, 1)
    drawn.append(
        steps.run([part(A, 7, 1)], tables=[table(A, 20, 1, 21)], swap_in=[(0, 20)]).tokens[A]
    )
    assert drawn == sampled_alone(subject, sequence, 3)
