"""Step costs are learned from measured times, and what is unknown stays as it was believed."""

from __future__ import annotations

import random

import pytest

from headway.core.costs import LearnedCosts, StepCosts, StepFeatures
from headway.core.plan import BlockMove, Padding, SequenceId, Slice, StepPlan

TRUE = StepCosts(base_s=0.05, prefill_token_s=0.0009, decode_s=0.004, swap_block_s=0.0008)


def a_step(chance: random.Random) -> StepFeatures:
    num_prefill = chance.randint(2, 2000) if chance.random() < 0.3 else 0
    num_swapped = chance.randint(1, 40) if chance.random() < 0.2 else 0
    return StepFeatures(num_prefill, chance.randint(0, 64), num_swapped)


def learn(truth: StepCosts, prior: StepCosts, *, num_steps: int, outliers: float) -> LearnedCosts:
    chance = random.Random(7)
    learned = LearnedCosts(prior)
    for _ in range(num_steps):
        step = a_step(chance)
        slower = 10 if chance.random() < outliers else 1
        learned.observe(step, truth.seconds(step) * chance.uniform(0.9, 1.1) * slower)
    return learned


def plan(*counts: int, **rest: object) -> StepPlan:
    slices = tuple(Slice(SequenceId(i), 0, count, True) for i, count in enumerate(counts))
    return StepPlan(0, slices, **rest)  # type: ignore[arg-type]  # free of choice in a test


def test_features_of_a_plan_without_padding() -> None:
    moves = (BlockMove(1, 2), BlockMove(3, 4))
    assert StepFeatures.of_plan(plan(1, 7, 1, 5)) == (12, 2, 0)
    assert StepFeatures.of_plan(plan(1, swap_out=moves, swap_in=moves[:1])) == (0, 1, 3)


def test_features_count_padding() -> None:
    assert StepFeatures.of_plan(plan(3, 5, padding=Padding(4, 5, 9))) == (20, 0, 0)
    assert StepFeatures.of_plan(plan(1, 1, padding=Padding(4, 1, 9))) == (0, 4, 0)


@pytest.mark.parametrize("level", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("shape", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("outliers", [0.0, 0.03])
def test_true_costs_are_found_from_any_prior(level: float, shape: float, outliers: float) -> None:
    prior = StepCosts(
        base_s=TRUE.base_s * level,
        prefill_token_s=TRUE.prefill_token_s * level * shape,
        decode_s=TRUE.decode_s * level,
        swap_block_s=TRUE.swap_block_s * level,
    )
    learned = learn(TRUE, prior, num_steps=1500, outliers=outliers)
    for step in StepFeatures(0, 1), StepFeatures(0, 60), StepFeatures(900, 10), StepFeatures(0, 9):
        assert learned.seconds(step) == pytest.approx(TRUE.seconds(step), rel=0.15)
    assert learned.costs.swap_block_s == pytest.approx(TRUE.swap_block_s, rel=1.0)


def test_few_steps_are_enough() -> None:
    learned = learn(TRUE, StepCosts(), num_steps=20, outliers=0.0)
    step = StepFeatures(500, 20)
    assert learned.seconds(step) == pytest.approx(TRUE.seconds(step), rel=0.15)


def test_one_slow_step_changes_little() -> None:
    learned = learn(TRUE, StepCosts(), num_steps=300, outliers=0.0)
    step = StepFeatures(0, 30)
    before = learned.seconds(step)
    learned.observe(step, 1000 * before)
    for _ in range(16):
        learned.observe(step, before)
    assert learned.seconds(step) == pytest.approx(before, rel=0.03)


def test_a_pause_in_the_first_step_with_a_swap_does_not_make_swapping_look_forbidding() -> None:
    learned = learn(StepCosts(), StepCosts(), num_steps=0, outliers=0.0)
    for number in range(100):
        learned.observe(StepFeatures(0, number % 30), 0.005 + 0.0001 * (number % 30))
    learned.observe(StepFeatures(0, 30, 4), 0.8)
    for _ in range(16):
        learned.observe(StepFeatures(0, 30), 0.008)
    assert learned.costs.swap_block_s < 3 * StepCosts().swap_block_s


def test_a_lasting_change_is_learned() -> None:
    learned = learn(TRUE, StepCosts(), num_steps=1000, outliers=0.0)
    step = StepFeatures(0, 30)
    for _ in range(3000):
        learned.observe(step, 5 * TRUE.seconds(step))
    assert learned.seconds(step) == pytest.approx(5 * TRUE.seconds(step), rel=0.05)


def test_what_no_step_had_keeps_its_prior() -> None:
    prior = StepCosts()
    learned = LearnedCosts(prior)
    for number in range(2000):
        learned.observe(StepFeatures(0, 1 + number % 40), 0.3 + 0.01 * (number % 40))
    assert learned.costs.prefill_token_s == pytest.approx(prior.prefill_token_s)
    assert learned.costs.swap_block_s == pytest.approx(prior.swap_block_s)
    assert learned.costs.decode_s == pytest.approx(0.01, rel=0.05)


def test_decode_steps_do_not_make_prefilling_unknown_again() -> None:
    learned = LearnedCosts(StepCosts())
    for number in range(50):
        learned.observe(StepFeatures(100 + number, 8), 0.1 + 0.001 * (100 + number))
    before = learned.costs.prefill_token_s
    assert before == pytest.approx(0.001, rel=0.2)
    for _ in range(20_000):
        learned.observe(StepFeatures(0, 8), 0.1)
    assert learned.costs.prefill_token_s == pytest.approx(before, rel=0.2)


def test_costs_are_never_negative() -> None:
    chance = random.Random(3)
    learned = LearnedCosts(StepCosts())
    for _ in range(2000):
        step = a_step(chance)
        # time falls with the work, which no sum of costs explains
        learned.observe(step, 1.0 / (1 + step.num_decodes + step.num_prefill_tokens))
        costs = learned.costs
        assert min(costs.base_s, costs.prefill_token_s, costs.decode_s, costs.swap_block_s) >= 0


def test_unknown_times_teach_nothing() -> None:
    learned = LearnedCosts(StepCosts())
    for elapsed_s in 0.0, -1.0, float("nan"), float("inf"):
        learned.observe(StepFeatures(10, 1), elapsed_s)
    assert learned.costs == StepCosts()


def test_costs_of_zero_can_be_learned_and_divided_by() -> None:
    free = StepCosts(base_s=0.0, prefill_token_s=0.0, decode_s=0.0, swap_block_s=0.0)
    assert free.prefill_tokens_within(0.1, 3) > 10**9
    learned = LearnedCosts(free)
    for number in range(500):
        learned.observe(StepFeatures(number % 7 * 100, number % 5), 0.01)
    assert learned.costs.base_s == pytest.approx(0.01, rel=0.05)


def test_prefill_tokens_within() -> None:
    costs = StepCosts(base_s=0.01, prefill_token_s=0.001, decode_s=0.002, swap_block_s=0.0)
    assert costs.prefill_tokens_within(0.0365, 3) == 20
    assert costs.prefill_tokens_within(0.01, 0) == 0
    assert costs.prefill_tokens_within(-5.0, 0) == 0
    assert LearnedCosts(costs).prefill_tokens_within(0.0365, 3) == 20


def test_learning_is_deterministic() -> None:
    first = learn(TRUE, StepCosts(), num_steps=200, outliers=0.1)
    second = learn(TRUE, StepCosts(), num_steps=200, outliers=0.1)
    assert first.costs == second.costs
