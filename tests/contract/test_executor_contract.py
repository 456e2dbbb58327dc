"""What every executor owes the engine: sequences, tables, slices, draws and log-probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from executor_subjects import NUM_BLOCKS, VOCAB, Steps, Subject, answer, new, part, table

from headway.core.plan import SampledToken, SequenceId, Slice, TableUpdate


def test_the_step_id_comes_back_and_time_is_not_negative(steps: Steps) -> None:
    steps.step_id = 41
    result = steps.run([part(1, 0, 6)], [new(1)], [table(1, 0, 1)])
    assert result.step_id == 41
    assert result.elapsed_s >= 0


def test_a_plan_without_slices_gives_nothing(steps: Steps) -> None:
    result = steps.run(news=[new(1)], tables=[table(1, 0, 1)])
    assert not result.tokens
    assert not result.failures
    assert steps.run([part(1, 0, 6)]).tokens


def test_tokens_come_only_from_slices_that_sample(steps: Steps) -> None:
    news, tables = [new(1), new(2), new(3)], [table(1, 0, 1), table(2, 2, 3), table(3, 4, 5)]
    slices = [part(1, 0, 6), part(2, 0, 6, sample=False), part(3, 0, 4, sample=False)]
    result = steps.run(slices, news, tables)
    assert set(result.tokens) == {1}
    assert all(0 <= token.token_id < VOCAB for token in result.tokens.values())


def test_the_order_of_slices_does_not_matter(subject: Subject) -> None:
    news = [new(i, 3 + i) for i in range(4)]
    tables = [table(i, *range(4 * i, 4 * i + 4)) for i in range(4)]
    slices = [part(i, 0, 3 + i) for i in range(4)]
    forward = Steps(subject.make()).run(slices, news, tables)
    backward = Steps(subject.make()).run(slices[::-1], news, tables)
    assert forward.tokens == backward.tokens


def test_neighbours_and_chunks_do_not_change_an_answer(subject: Subject, steps: Steps) -> None:
    expected = answer(subject, new(1, 21), 6)
    tables = [table(1, 9, 3, 40, 17, 5, 22, 8, 30)]
    steps.run([part(1, 0, 5, sample=False)], [new(1, 21)], tables)
    news, tables = [new(2, 9), new(3, 2)], [table(2, *range(50, 54)), table(3, 0, 1)]
    steps.run([part(2, 0, 9), part(1, 5, 9, sample=False), part(3, 0, 2)], news, tables)
    mixed = steps.run([part(3, 2, 1), part(1, 14, 7), part(2, 9, 1)])
    drawn = [mixed.tokens[SequenceId(1)].token_id]
    drawn += [steps.run([part(2, 10, 1), part(1, 21, 1)]).tokens[SequenceId(1)].token_id]
    drawn += steps.decode(1, 22, 4)
    assert drawn == expected


def test_a_resumed_sequence_goes_on_as_if_nothing_had_been(subject: Subject, steps: Steps) -> None:
    expected = answer(subject, new(1, 10), 9)
    first = steps.run([part(1, 0, 10)], [new(1, 10)], [table(1, 0, 1, 2, 3)])
    drawn = [first.tokens[SequenceId(1)].token_id, *steps.decode(1, 10, 3)]
    # Another sequence takes the blocks; the first comes back in others, computed anew in chunks.
    steps.run([part(2, 0, 16)], [new(2, 16)], [table(2, 3, 2, 1, 0)])
    steps.run([part(1, 0, 9, sample=False)], tables=[table(1, 10, 11, 12)])
    resumed = steps.run([part(1, 9, 5)], tables=[table(1, 13, 14, first=3)])
    drawn += [resumed.tokens[SequenceId(1)].token_id, *steps.decode(1, 14, 4)]
    assert drawn == expected


def test_a_shared_prefix_is_read_through_the_table(subject: Subject, steps: Steps) -> None:
    whole = new(1, 11)
    expected = answer(subject, whole, 4)
    steps.run([part(2, 0, 11)], [replace(whole, sequence_id=SequenceId(2))], [table(2, 7, 8, 9)])
    result = steps.run([part(1, 8, 3)], [whole], [table(1, 7, 8, 20, 21)])
    drawn = [result.tokens[SequenceId(1)].token_id, *steps.decode(1, 11, 3)]
    assert drawn == expected


def test_a_table_can_grow_step_by_step(subject: Subject, steps: Steps) -> None:
    expected = answer(subject, new(1, 4), 6)
    drawn = [steps.run([part(1, 0, 4)], [new(1, 4)], [table(1, 33)])]
    drawn += [steps.run([part(1, 4, 1)], tables=[table(1, 2, first=1)])]
    drawn += [steps.run([part(1, 5 + i, 1)]) for i in range(3)]
    drawn += [steps.run([part(1, 8, 1)], tables=[table(1, 60, first=2)])]
    assert [result.tokens[SequenceId(1)].token_id for result in drawn] == expected


def test_released_sequences_are_forgotten(steps: Steps) -> None:
    steps.run([part(1, 0, 6)], [new(1)], [table(1, 0, 1)])
    steps.run(released=[1])
    with pytest.raises(ValueError, match="sequence 1"):
        steps.run([part(1, 6, 1)])
    with pytest.raises(ValueError, match="sequence 1"):
        steps.run(tables=[table(1, 0)])


def test_a_release_comes_before_new_sequences(subject: Subject, steps: Steps) -> None:
    steps.run([part(1, 0, 6)], [new(1)], [table(1, 0, 1)])
    again = steps.run([part(1, 0, 6)], [new(1)], [table(1, 2, 3)], released=[1])
    assert again.tokens[SequenceId(1)].token_id == answer(subject, new(1), 1)[0]


@pytest.mark.parametrize(
    ("slices", "tables"),
    [
        ([part(9, 0, 1)], []),
        ([], [table(9, 0)]),
        ([], [table(1, 3, NUM_BLOCKS, first=2)]),
        ([], [table(1, -1, first=2)]),
        ([], [table(1, 3, first=3)]),  # a gap
        ([part(1, 6, 3)], [table(1, 2, first=2)]),  # only one more token is known
        ([part(1, -1, 2)], []),
        ([part(1, 6, 0)], []),
        ([part(1, 5, 2)], [table(1, 0, first=0)]),  # the table became too short
    ],
)
def test_a_plan_that_names_what_is_not_there_is_refused(
    steps: Steps, slices: list[Slice], tables: list[TableUpdate]
) -> None:
    steps.run([part(1, 0, 6)], [new(1)], [table(1, 0, 1)])
    with pytest.raises(ValueError, match=r"sequence (1|9)"):
        steps.run(slices, tables=tables)


def test_a_failure_stays_with_its_sequence(subject: Subject, steps: Steps) -> None:
    bad = subject.spoil(new(2))
    news, tables = [new(1), bad, new(3)], [table(1, 0, 1, 2), table(2, 3, 4), table(3, 5, 6)]
    result = steps.run([part(i, 0, 6) for i in (1, 2, 3)], news, tables)
    assert set(result.tokens) == {1, 3}
    assert set(result.failures) == {2}
    assert result.failures[SequenceId(2)]
    assert result.tokens[SequenceId(1)].token_id == answer(subject, new(1), 1)[0]
    assert result.tokens[SequenceId(3)].token_id == answer(subject, new(3), 1)[0]
    steps.run(released=[2])
    assert steps.decode(1, 6, 2) == answer(subject, new(1), 3)[1:]


def test_draws_depend_on_seed_index_and_position(subject: Subject) -> None:
    hot: dict[str, Any] = {"temperature": 50.0}
    first = answer(subject, new(1, **hot), 8)
    assert answer(subject, new(1, **hot), 8) == first
    other_seed = new(1, seed=8, **hot)
    other_index = replace(new(1, **hot), index=1)
    assert answer(subject, other_seed, 8) != first
    assert answer(subject, other_index, 8) != first


def test_no_stop_token_is_drawn_before_min_tokens(subject: Subject) -> None:
    every_token_but_one = tuple(range(1, VOCAB))
    sequence = new(1, stop_token_ids=every_token_but_one, min_tokens=4)
    if subject.name == "simulated":
        pytest.skip("ends where the trace says")
    assert answer(subject, sequence, 4) == [0, 0, 0, 0]


class TestLogprobs:
    """Only of executors that know any."""

    @pytest.fixture(autouse=True)
    def _needs_scores(self, subject: Subject) -> None:
        if not subject.scores:
            pytest.skip("has no log-probabilities")

    def test_they_come_only_where_asked_for(self, steps: Steps) -> None:
        news = [new(1), new(2, logprobs=0), new(3, logprobs=3, prompt_logprobs=2)]
        tables = [table(i, 2 * i, 2 * i + 1) for i in (1, 2, 3)]
        result = steps.run([part(i, 0, 6) for i in (1, 2, 3)], news, tables)
        none, bare, full = (result.tokens[SequenceId(i)] for i in (1, 2, 3))
        assert none.logprobs is None
        assert bare.logprobs is not None
        assert bare.logprobs.top == ()
        _check_top(full, 3)
        assert set(result.prompt_logprobs) == {3}

    def test_more_than_the_vocabulary_gives_all_of_it(self, steps: Steps) -> None:
        result = steps.run([part(1, 0, 6)], [new(1, logprobs=VOCAB + 9)], [table(1, 0, 1)])
        _check_top(result.tokens[SequenceId(1)], VOCAB)

    @pytest.mark.parametrize("chunks", [[7], [3, 4], [1, 1, 5], [6, 1], [4, 2, 1]])
    def test_prompt_positions_are_scored_by_the_step_before(
        self, steps: Steps, chunks: list[int]
    ) -> None:
        sequence = new(1, 7, prompt_logprobs=1)
        steps.run(news=[sequence], tables=[table(1, 0, 1, 2)])
        scored: dict[int, float] = {}
        start = 0
        for count in chunks:
            result = steps.run([part(1, start, count, sample=start + count == 7)])
            expected = range(start + 1, min(start + count + 1, 7))
            start += count
            if not expected:
                assert not result.prompt_logprobs
                continue
            scores = result.prompt_logprobs[SequenceId(1)]
            assert scores.start == expected.start
            assert len(scores.entries) == len(expected)
            for position, entry in zip(expected, scores.entries, strict=True):
                assert entry.token_id == sequence.prompt_token_ids[position]
                assert entry.logprob <= entry.top[0][1] <= 0
                scored[position] = entry.logprob
        assert list(scored) == [1, 2, 3, 4, 5, 6]
        assert not steps.run([part(1, 7, 1)]).prompt_logprobs

    def test_tokens_of_the_answer_are_not_scored_as_prompt(self, steps: Steps) -> None:
        steps.run([part(1, 0, 7)], [new(1, 7, prompt_logprobs=1)], [table(1, 0, 1, 2)])
        steps.decode(1, 7, 3)
        resumed = steps.run([part(1, 0, 11)], tables=[table(1, 5, 6, 7)])
        assert len(resumed.prompt_logprobs[SequenceId(1)].entries) == 6
        assert resumed.tokens

    def test_the_prompt_is_scored_for_the_first_of_n_only(self, steps: Steps) -> None:
        first = new(1, prompt_logprobs=1)
        second = replace(first, sequence_id=SequenceId(2), index=1)
        result = steps.run(
            [part(1, 0, 6), part(2, 0, 6)], [first, second], [table(1, 1, 2), table(2, 3, 4)]
        )
        assert set(result.prompt_logprobs) == {1}
        assert set(result.tokens) == {1, 2}

    def test_prompt_scores_have_the_same_bits_in_any_chunks(self, subject: Subject) -> None:
        sequence = new(1, 40, prompt_logprobs=VOCAB)
        entries = []
        for chunks in ([40], [1] * 40, [7, 33], [33, 7]):
            steps, start, found = Steps(subject.make()), 0, []
            steps.run(news=[sequence], tables=[table(1, *range(10))])
            for count in chunks:
                result = steps.run([part(1, start, count, sample=False)])
                start += count
                found += [e for p in result.prompt_logprobs.values() for e in p.entries]
            entries.append(found)
        assert len(entries[0]) == 39
        assert all(found == entries[0] for found in entries)


def _check_top(token: SampledToken, count: int) -> None:
    logprobs = token.logprobs
    assert logprobs is not None
    assert logprobs.token_id == token.token_id
    values = [value for _, value in logprobs.top]
    assert len(values) == count
    assert values == sorted(values, reverse=True)
    assert dict(logprobs.top).get(token.token_id, logprobs.logprob) == logprobs.logprob
