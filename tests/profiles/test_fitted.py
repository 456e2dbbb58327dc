"""A fit finds the costs again, knows how good it is, and where it ends."""

from __future__ import annotations

import random
from dataclasses import replace
from math import sin

import pytest
from steps import decodes, mixed, prefill

from headway.profiles.errors import ProfileError
from headway.profiles.features import FEATURES, ObservedStep
from headway.profiles.fitted import FitError, FittedCosts, fit_device, fit_host
from headway.profiles.least_squares import NormalEquations
from headway.profiles.shape import StepShape

TRUE = {
    "step": 4e-3,
    "prefill_tokens": 3e-5,
    "prefill_pairs": 4e-9,
    "decodes": 5e-5,
    "rows_above_32": 1e-5,
    "decode_context": 6e-8,
    "mixed": 2e-3,
    "swapped_blocks": 7e-5,
}


def seconds(shape: StepShape) -> float:
    return sum(cost * FEATURES[name](shape) for name, cost in TRUE.items())


def a_step(chance: random.Random) -> StepShape:
    chunk = (chance.choice((0, 0, 700)), chance.randint(2, 1500))
    kind = chance.random()
    if kind < 0.2:
        return prefill(chunk)
    shape = decodes(chance.randint(1, 100), chance.randint(10, 3000))
    if kind < 0.6:
        shape = mixed(shape.num_decodes, shape.longest_decode, chunk)
    return shape._replace(num_swapped_blocks=chance.choice((0, 0, 0, 25)))


def log(number: int, noise: float = 0.0, seed: int = 1) -> list[ObservedStep]:
    chance = random.Random(seed)
    shapes = [a_step(chance) for _ in range(number)]
    return [ObservedStep(s, seconds(s) * chance.gauss(1, noise)) for s in shapes]


def test_known_costs_are_found_again() -> None:
    found = fit_device(log(300))
    for name in FEATURES:
        assert found.costs_s.get(name, 0.0) == pytest.approx(
            TRUE.get(name, 0.0), rel=1e-3, abs=1e-8
        ), name
    assert found.error.p90 < 1e-5
    assert found.error.num_steps == 60


def test_noise_is_averaged_out_and_its_size_is_stated() -> None:
    found = fit_device(log(3000, noise=0.05))
    for name, cost in TRUE.items():
        assert found.costs_s[name] == pytest.approx(cost, rel=0.15), name
    assert 0.03 < found.error.median < 0.04, "the median of |N(0, 0.05)| is 0.034"
    assert 0.07 < found.error.p90 < 0.095


def test_slow_times_are_not_taken_for_a_cost_of_large_batches() -> None:
    """A machine that is slow for a while has a queue then, and large batches."""
    chance = random.Random(5)
    steps = []
    for number in range(3000):
        slower = 1 + 0.3 * sin(number / 100)
        shape = decodes(max(1, round(40 * slower**4 * chance.uniform(0.5, 1.5))), 500)
        if number % 3 == 0:
            shape = mixed(shape.num_decodes, 500, (0, round(300 * slower * chance.random()) + 2))
        steps.append(ObservedStep(shape, seconds(shape) * slower))
    found = fit_device(steps, shapes_mix=True)
    shapes = (decodes(20, 500), decodes(120, 500), mixed(30, 500, (0, 300)))
    factors = [found.seconds(shape) / seconds(shape) for shape in shapes]
    assert max(factors) / min(factors) < 1.25, "1.5 where slow times are not told apart"


def test_a_pause_of_the_machine_changes_little() -> None:
    steps = log(600, noise=0.02)
    steps[7] = steps[7]._replace(seconds=30.0)
    steps[300] = steps[300]._replace(seconds=5.0)
    found = fit_device(steps)
    shape = mixed(30, 1000, (0, 500))
    assert found.seconds(shape) == pytest.approx(seconds(shape), rel=0.03)


def test_no_cost_is_negative() -> None:
    """Longer contexts that seem to be faster cost nothing."""
    steps = [
        ObservedStep(decodes(n, c), 0.01 + 1e-4 * n - 1e-9 * n * c)
        for n in range(1, 30)
        for c in (100, 500, 900)
    ]
    found = fit_device(steps)
    assert "decode_context" not in found.costs_s
    assert all(cost > 0 for cost in found.costs_s.values())
    assert found.costs_s["decodes"] == pytest.approx(1e-4, rel=0.05)


def test_what_the_log_had_nothing_like_is_said() -> None:
    steps = [step for step in log(300) if not step.shape.num_swapped_blocks]
    found = fit_device(steps)
    assert found.covers(mixed(30, 1000, (0, 500)))
    assert found.beyond(decodes(101, 100)) == ["decodes"]
    assert found.beyond(decodes(50, 30_000)) == ["decode_context"]
    assert found.beyond(prefill((0, 1501))) == ["prefill_tokens"]
    swapping = decodes(5, 100)._replace(num_swapped_blocks=1)
    assert found.beyond(swapping) == ["swapped_blocks"]
    assert found.seconds(swapping) == pytest.approx(found.seconds(decodes(5, 100)))
    older = replace(found, ranges={"decodes": found.ranges["decodes"]})
    assert older.beyond(decodes(101, 100)) == ["decodes"]
    assert older.covers(swapping), "a feature that a profile doesn't know says nothing"


def test_the_host_has_features_of_its_own() -> None:
    steps = [
        step._replace(host_s=1e-3 + 1e-5 * step.shape.num_sequences + 2e-4 * len(step.shape.chunks))
        for step in log(200)
    ]
    found = fit_host(steps)
    assert found.costs_s == pytest.approx({"step": 1e-3, "sequences": 1e-5, "chunks": 2e-4})


def test_too_little_is_refused() -> None:
    with pytest.raises(ProfileError, match="19 steps are too few"):
        fit_device(log(19))
    with pytest.raises(ProfileError, match="0 steps are too few"):
        fit_host(log(100))
    error = FitError(median=0, p90=0, num_steps=1)
    with pytest.raises(ProfileError, match="colour is no feature: there are step"):
        FittedCosts(costs_s={"colour": 1.0}, ranges={}, error=error)


def test_equal_columns_share_their_cost() -> None:
    equations = NormalEquations(3)
    for x in range(1, 9):
        equations.add([x, x, 0.0], 6.0 * x, 1.0)
    found = equations.solve()
    assert found[0] + found[1] == pytest.approx(6)
    assert found[2] == 0


def test_the_best_that_is_not_negative_is_found() -> None:
    """Against the best of all subsets of columns, each by elimination, over random problems."""
    chance = random.Random(5)
    for _ in range(30):
        rows = [[chance.gauss(0, 1) for _ in range(3)] for _ in range(12)]
        values = [chance.gauss(0, 1) for _ in rows]
        equations = NormalEquations(3)
        for row, value in zip(rows, values, strict=True):
            equations.add(row, value, 1.0)
        found = equations.solve()
        assert all(each >= 0 for each in found)
        least = loss(rows, values, found)
        for _ in range(200):
            other = [max(each + chance.gauss(0, 0.1), 0.0) for each in found]
            assert loss(rows, values, other) >= least - 1e-9


def loss(rows: list[list[float]], values: list[float], costs: list[float]) -> float:
    return sum(
        (sum(x * c for x, c in zip(row, costs, strict=True)) - value) ** 2
        for row, value in zip(rows, values, strict=True)
    )


def test_what_is_old_can_be_forgotten() -> None:
    equations = NormalEquations(1)
    equations.add([1.0], 10.0, 1.0)
    equations.forget(0.0)
    equations.add([1.0], 4.0, 1.0)
    assert equations.solve() == pytest.approx([4.0])
