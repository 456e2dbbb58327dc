"""What every executor owes the engine: one suite for all of them.

To put another executor under it, add a Subject.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headway.core.plan import (
    NewSequence,
    RequestId,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TableUpdate,
)
from headway.core.ports import Executor
from headway.core.sampling import SamplingParams

NUM_BLOCKS, BLOCK_SIZE, VOCAB = 64, 4, 97


@dataclass(frozen=True)
class Subject:
    """An executor under the contract.

    ``make`` gives a fresh one with the pool and vocabulary above. ``spoil`` turns a sequence into
    one that the executor must fail when it samples. ``scores`` says if it knows log-probabilities.
    """

    name: str
    make: Callable[[], Executor]
    spoil: Callable[[NewSequence], NewSequence]
    scores: bool


def _torch(dtype: Any) -> Subject:
    def make() -> Executor:
        pytest.importorskip("torch")
        from headway.executors.torch import TorchExecutor
        from headway.testing.tiny_models import tiny_checkpoint, tiny_config

        checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB))
        return TorchExecutor(
            checkpoint, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype, num_threads=1
        )

    def spoil(new: NewSequence) -> NewSequence:
        return replace(new, prompt_token_ids=(*new.prompt_token_ids[:-1], VOCAB))

    return Subject(f"torch-{dtype}", make, spoil, scores=True)


def _simulated() -> Subject:
    from headway.executors.simulated import LinearStepCost, SimulatedExecutor

    class NoTime:
        def sleep(self, seconds: float) -> None:
            pass

    def make() -> Executor:
        cost = LinearStepCost(base_s=0.01, prefill_token_s=0.001, decode_s=0.002)
        return SimulatedExecutor(
            cost, NoTime(), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, vocab_size=VOCAB
        )

    def spoil(new: NewSequence) -> NewSequence:
        return replace(new, sampling=replace(new.sampling, logprobs=1))

    return Subject("simulated", make, spoil, scores=False)


def _replay() -> Subject:
    """The replay executor, with a simulated one at its side whose results it is given."""
    from headway.executors.replay import ReplayExecutor

    simulated = _simulated()

    class Recorded:
        def __init__(self) -> None:
            self._original = simulated.make()

        def run(self, plan: StepPlan) -> StepResult:
            result = self._original.run(plan)
            return ReplayExecutor({plan.step_id: result}).run(plan)

    return Subject("replay", Recorded, simulated.spoil, scores=False)


SUBJECTS = [_torch("float32"), _torch("bfloat16"), _simulated(), _replay()]


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    chosen: Subject = request.param
    return chosen


@pytest.fixture
def executor(subject: Subject) -> Executor:
    return subject.make()


def new(sequence_id: int, num_tokens: int = 6, **sampling: Any) -> NewSequence:
    rng = random.Random(sequence_id)
    fields: dict[str, Any] = {"max_tokens": 50, "temperature": 1.0, "seed": 7, **sampling}
    prompt = tuple(rng.randrange(VOCAB) for _ in range(num_tokens))
    return NewSequence(
        SequenceId(sequence_id), RequestId(f"r{sequence_id}"), 0, prompt, SamplingParams(**fields)
    )


def part(sequence_id: int, start: int, count: int, sample: bool = True) -> Slice:
    return Slice(SequenceId(sequence_id), start, count, sample)


def table(sequence_id: int, *block_ids: int, first: int = 0) -> TableUpdate:
    return TableUpdate(SequenceId(sequence_id), first, block_ids)


class Steps:
    """Numbers plans and runs them."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.step_id = 0

    def run(
        self,
        slices: Sequence[Slice] = (),
        news: Sequence[NewSequence] = (),
        tables: Sequence[TableUpdate] = (),
        released: Sequence[int] = (),
    ) -> StepResult:
        plan = StepPlan(
            self.step_id,
            tuple(slices),
            tuple(news),
            tuple(tables),
            tuple(SequenceId(i) for i in released),
        )
        self.step_id += 1
        return self.executor.run(plan)

    def decode(self, sequence_id: int, start: int, count: int) -> list[int]:
        """Decode alone; the table is long enough."""
        results = [self.run([part(sequence_id, start + i, 1)]) for i in range(count)]
        return [r.tokens[SequenceId(sequence_id)].token_id for r in results]


@pytest.fixture
def steps(executor: Executor) -> Steps:
    return Steps(executor)


def answer(subject: Subject, sequence: NewSequence, count: int) -> list[int]:
    """What the sequence answers alone, its prompt in one piece, in blocks 0, 1, 2, …"""
    steps, key = Steps(subject.make()), sequence.sequence_id
    length = len(sequence.prompt_token_ids)
    first = steps.run([part(key, 0, length)], [sequence], [table(key, *range(16))])
    return [first.tokens[key].token_id, *steps.decode(key, length, count - 1)]


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
