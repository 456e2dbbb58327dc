"""What every executor owes the engine: steps of the padded batching modes."""

from __future__ import annotations

import pytest
from executor_subjects import (
    BLOCK_SIZE,
    NUM_BLOCKS,
    VOCAB,
    Steps,
    Subject,
    new,
    part,
    sampled_alone,
    table,
)

from headway.core.plan import NewSequence, SampledToken, SequenceId

LENGTHS = {1: 3, 2: 7, 3: 21}
LONGEST = max(LENGTHS.values())
PROMPTS = [part(key, 0, length) for key, length in LENGTHS.items()]
TABLES = [table(key, *range(10 * key, 10 * key + 8)) for key in LENGTHS]


def members(subject: Subject) -> list[NewSequence]:
    """Sequences of unequal lengths, which show all that is known of every draw."""
    scores = {"logprobs": VOCAB, "prompt_logprobs": 3} if subject.scores else {}
    return [new(key, length, **scores) for key, length in LENGTHS.items()]


def alone(subject: Subject, count: int) -> dict[SequenceId, list[SampledToken]]:
    """What each of them draws alone, without padding."""
    return {each.sequence_id: sampled_alone(subject, each, count) for each in members(subject)}


@pytest.mark.parametrize("num_ghosts", [0, 1, 5])
@pytest.mark.parametrize("num_more", [0, 1, 40])
def test_padding_changes_no_answer(
    subject: Subject, steps: Steps, num_ghosts: int, num_more: int
) -> None:
    """Ghosts are members without a slice; ``num_more`` positions lie behind the longest slice."""
    size = len(LENGTHS) + num_ghosts
    result = steps.run(
        PROMPTS,
        members(subject),
        TABLES,
        padding=(size, LONGEST + num_more, LONGEST + num_more),
    )
    drawn = {key: [token] for key, token in result.tokens.items()}
    for step in range(5):
        result = steps.run(
            [part(key, length + step, 1) for key, length in LENGTHS.items()],
            padding=(size, 1, LONGEST + step + 1 + num_more),
        )
        assert set(result.tokens) == set(LENGTHS)
        for key, token in result.tokens.items():
            drawn[key].append(token)
    assert drawn == alone(subject, 6)


def test_members_may_finish_one_by_one(subject: Subject, steps: Steps) -> None:
    """As in a static batch: slots are computed to its end."""
    expected = alone(subject, 4)
    result = steps.run(
        PROMPTS,
        members(subject),
        TABLES,
        padding=(3, LONGEST, LONGEST),
    )
    drawn = {key: [token] for key, token in result.tokens.items()}
    for step, live in enumerate(([1, 2, 3], [2, 3], [3])):
        result = steps.run(
            [part(key, LENGTHS[key] + step, 1) for key in live],
            released=[1] if step == 1 else [2] if step == 2 else [],
            padding=(3, 1, LONGEST + step + 1),
        )
        for key, token in result.tokens.items():
            drawn[key].append(token)
    assert drawn == {key: tokens[: key + 1] for key, tokens in expected.items()}


def test_prompts_in_chunks_are_padded_too(subject: Subject, steps: Steps) -> None:
    """Slices of unequal starts and lengths, one of a single token among longer ones."""
    news = members(subject)
    steps.run(news=news, tables=TABLES)
    steps.run([part(3, 0, 20, sample=False), part(2, 0, 2, sample=False)], padding=(4, 20, 20))
    result = steps.run([part(3, 20, 1), part(2, 2, 5), part(1, 0, 3)], padding=(4, 5, 21))
    assert result.tokens == {key: tokens[0] for key, tokens in alone(subject, 1).items()}


def test_prompt_scores_are_of_real_rows(subject: Subject) -> None:
    if not subject.scores:
        pytest.skip("has no log-probabilities")
    found = []
    for padding in (None, (6, 30, 33)):
        steps = Steps(subject.make())
        result = steps.run(
            PROMPTS,
            members(subject),
            TABLES,
            padding=padding,
        )
        found.append((result.prompt_logprobs, result.tokens))
    assert found[0] == found[1]


def test_padding_writes_to_no_block(subject: Subject, steps: Steps) -> None:
    """A sequence fills the whole pool; padded steps pass before it goes on."""
    length = NUM_BLOCKS * BLOCK_SIZE - BLOCK_SIZE - 1
    scores = {"logprobs": VOCAB} if subject.scores else {}
    sequence = new(1, length, **scores)
    blocks = range(NUM_BLOCKS - 1)
    twin = Steps(subject.make())
    for each in (steps, twin):
        each.run([part(1, 0, length)], [sequence], [table(1, *blocks)])
    steps.run([part(2, 0, 4)], [new(2, 4)], [table(2, NUM_BLOCKS - 1)], padding=(9, 30, 60))
    steps.run(released=[2], padding=(3, 1, NUM_BLOCKS * BLOCK_SIZE))
    assert steps.sampled(1, length, 1) == twin.sampled(1, length, 1)


def test_moves_and_padding_go_together(subject: Subject, steps: Steps) -> None:
    scores = {"logprobs": VOCAB} if subject.scores else {}
    sequence = new(1, 10, **scores)
    drawn = [steps.run([part(1, 0, 10)], [sequence], [table(1, 0, 1, 2)]).tokens[SequenceId(1)]]
    steps.run(swap_out=[(0, 0), (1, 1), (2, 2)])
    result = steps.run(
        [part(1, 10, 1)],
        tables=[table(1, 8, 9, 10)],
        swap_in=[(0, 8), (1, 9), (2, 10)],
        padding=(4, 1, 200),
    )
    drawn.append(result.tokens[SequenceId(1)])
    assert drawn == sampled_alone(subject, sequence, 2)


def test_a_failure_in_a_padded_step_stays_with_its_sequence(subject: Subject, steps: Steps) -> None:
    bad = subject.spoil(new(2))
    news, news_tables = [new(1), bad], [table(1, 0, 1), table(2, 2, 3)]
    result = steps.run([part(1, 0, 6), part(2, 0, 6)], news, news_tables, padding=(3, 6, 6))
    assert set(result.tokens) == {1}
    assert set(result.failures) == {2}
    assert result.tokens[SequenceId(1)] == sampled_alone(subject, new(1), 1)[0]


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ((1, 4, 10), "1 sequences for 2 slices"),
        ((2, 3, 10), "3 rows for a slice of 4"),
        ((2, 4, 9), "length 9 for 4 rows and slices that end at 10"),
        ((2, 11, 10), "length 10 for 11 rows"),
        ((2, 4, NUM_BLOCKS * BLOCK_SIZE + 1), "length 257 goes beyond 256 positions"),
        ((0, 4, 10), "0 sequences"),
    ],
)
def test_padding_that_does_not_cover_the_slices_is_refused(
    subject: Subject, steps: Steps, padding: tuple[int, int, int], message: str
) -> None:
    first, second = new(1, 10), new(2, 10)
    news, news_tables = [first, second], [table(1, 0, 1, 2, 3), table(2, 4, 5, 6)]
    steps.run([part(1, 0, 6, sample=False), part(2, 0, 9, sample=False)], news, news_tables)
    with pytest.raises(ValueError, match=message):
        steps.run([part(1, 6, 4), part(2, 9, 1)], copies=[(4, 0)], padding=padding)
    result = steps.run([part(1, 6, 4), part(2, 9, 1)], padding=(2, 4, 10))
    assert result.tokens == {each.sequence_id: sampled_alone(subject, each, 1)[0] for each in news}


@pytest.mark.parametrize("padding", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, -1, 1)])
def test_padding_of_nothing_is_refused(steps: Steps, padding: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="padding"):
        steps.run(padding=padding)
