"""What is special to the executor without a model: what steps cost, and which tokens come."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headway.core.costs import StepCosts, StepFeatures
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
from headway.engine.clock import VirtualClock
from headway.executors.simulated import SimulatedExecutor
from headway.executors.simulated_tokens import ArbitraryVocabulary

COST = StepCosts(base_s=1000, prefill_token_s=1, decode_s=100, swap_block_s=0.01)
MOVES = (BlockMove(0, 0), BlockMove(1, 1))


def slices(*counts: int) -> tuple[Slice, ...]:
    return tuple(Slice(SequenceId(i), 0, count, False) for i, count in enumerate(counts))


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        (StepPlan(0, ()), 1000),
        (StepPlan(0, slices(1, 1, 5, 7)), 1000 + 2 * 100 + 12),
        (StepPlan(0, slices(5, 7), padding=Padding(4, 7, 90)), 1000 + 28),
        (StepPlan(0, slices(1, 1), padding=Padding(5, 1, 90)), 1000 + 5 * 100),
        (StepPlan(0, slices(1, 9), padding=Padding(2, 9, 90)), 1000 + 18),
        (StepPlan(0, (), swap_out=MOVES, swap_in=MOVES[:1]), 1000.03),
        (StepPlan(0, (), copies=MOVES), 1000),
    ],
)
def test_a_step_costs_what_it_computes_and_moves(plan: StepPlan, seconds: float) -> None:
    assert COST.seconds(StepFeatures.of_plan(plan)) == pytest.approx(seconds)


def test_a_refused_plan_takes_no_time_and_draws_nothing() -> None:
    clock = VirtualClock()
    executor = SimulatedExecutor(COST, clock, num_blocks=4, block_size=4, vocab_size=50)
    sampling = SamplingParams(max_tokens=9)
    new = NewSequence(SequenceId(1), RequestId("r"), 0, (1, 2, 3), sampling)
    table = TableUpdate(SequenceId(1), 0, (0, 1))
    executor.run(StepPlan(0, (Slice(SequenceId(1), 0, 3, True),), (new,), (table,)))
    before = clock.now()
    good, bad = Slice(SequenceId(1), 3, 1, True), Slice(SequenceId(2), 0, 1, True)
    with pytest.raises(ValueError, match="sequence 2"):
        executor.run(StepPlan(1, (good, bad)))
    with pytest.raises(ValueError, match="sequence 1 has two slices"):
        executor.run(StepPlan(1, (good, good)))
    assert clock.now() == before
    assert executor.run(StepPlan(2, (good,))).tokens


def test_a_failed_sequence_may_be_named_by_plans_already_made() -> None:
    executor = SimulatedExecutor(COST, VirtualClock(), num_blocks=4, block_size=4, vocab_size=50)
    sampling = SamplingParams(max_tokens=9, logprobs=1)
    new = NewSequence(SequenceId(1), RequestId("r"), 0, (1, 2, 3), sampling)
    table = TableUpdate(SequenceId(1), 0, (0, 1))
    first = executor.run(StepPlan(0, (Slice(SequenceId(1), 0, 3, True),), (new,), (table,)))
    second = executor.run(StepPlan(1, (Slice(SequenceId(1), 3, 1, True),)))
    assert set(first.failures) == set(second.failures) == {1}


def draws(count: int, vocab_size: int = 1000, **options: Any) -> list[int]:
    fields = {"seed": 1, "index": 0, "stop_token_ids": (), "length": None, **options}
    endless = ArbitraryVocabulary(vocab_size).draws(**fields)
    return [next(endless).token_id for _ in range(count)]


class TestTokens:
    def test_they_are_a_function_of_seed_index_and_position(self) -> None:
        assert draws(200) == draws(200)
        assert draws(200) != draws(200, seed=2)
        assert draws(200) != draws(200, index=1)
        assert draws(200, seed=1, index=11) != draws(200, seed=11, index=1)

    def test_sequences_are_no_shifted_copies_of_each_other(self) -> None:
        ours, theirs = draws(500), draws(500, seed=2)
        windows = {tuple(ours[i : i + 3]) for i in range(498)}
        assert not windows & {tuple(theirs[i : i + 3]) for i in range(498)}

    def test_the_whole_vocabulary_is_used(self) -> None:
        counts = Counter(draws(5000, vocab_size=50))
        assert set(counts) == set(range(50))
        assert max(counts.values()) < 160

    @pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 200])
    def test_an_answer_ends_with_a_stop_token_at_its_length(self, length: int) -> None:
        found = draws(length + 3, vocab_size=9, stop_token_ids=(4, 7), length=length)
        assert found[length - 1 :] == [4] * 4
        assert not {4, 7} & set(found[: length - 1])

    def test_stop_tokens_are_left_out_and_nothing_else_changes(self) -> None:
        plain, found = draws(300, vocab_size=9), draws(300, vocab_size=9, stop_token_ids=(7, 8, 40))
        assert [0 if token in (7, 8) else token for token in plain] == found

    def test_an_answer_without_a_length_does_not_stop(self) -> None:
        assert 3 not in draws(500, vocab_size=9, stop_token_ids=(3,))

    def test_without_other_tokens_stop_tokens_come(self) -> None:
        assert set(draws(100, vocab_size=2, stop_token_ids=(0, 1))) == {0, 1}

    def test_without_stop_tokens_the_length_says_nothing(self) -> None:
        assert draws(100, length=5) == draws(100)

    def test_many_sets_of_stop_tokens_are_kept_apart(self) -> None:
        vocabulary = ArbitraryVocabulary(40)
        for stop in [*range(40), *range(40)]:
            endless = vocabulary.draws(seed=0, index=0, stop_token_ids=(stop,), length=None)
            assert stop not in {next(endless).token_id for _ in range(200)}
