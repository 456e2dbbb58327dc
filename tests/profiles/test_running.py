"""A fit that is never done: it finds costs, follows a machine that changes, and forgets nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from steps import decodes, mixed, prefill

from headway.profiles.errors import ProfileError
from headway.profiles.features import FEATURES, ObservedStep
from headway.profiles.fitted import fit_device
from headway.profiles.running import RunningFit
from headway.profiles.shape import StepShape

TRUE = {"step": 4e-3, "prefill_tokens": 3e-5, "decodes": 5e-5, "decode_context": 6e-8}


def seconds(shape: StepShape) -> float:
    return sum(cost * FEATURES[name](shape) for name, cost in TRUE.items())


def a_step(chance: random.Random) -> StepShape:
    kind = chance.random()
    chunk = (chance.choice((0, 300)), chance.randint(2, 800))
    if kind < 0.1:
        return prefill(chunk)
    if kind < 0.2:
        return mixed(chance.randint(1, 60), chance.randint(10, 2000), chunk)
    return decodes(chance.randint(1, 60), chance.randint(10, 2000))


def run(fit: RunningFit, number: int, factor: float = 1.0, noise: float = 0.0) -> None:
    chance = random.Random(number)
    for _ in range(number):
        shape = a_step(chance)
        fit.add(shape, factor * seconds(shape) * chance.lognormvariate(0, noise))


def assert_costs(fit: RunningFit, factor: float, rel: float) -> None:
    found = fit.costs()
    for shape in (decodes(1, 100), decodes(50, 1500), prefill((0, 600)), mixed(20, 500, (0, 300))):
        assert found.seconds(shape) == pytest.approx(factor * seconds(shape), rel=rel)


def test_known_costs_are_found() -> None:
    fit = RunningFit("device")
    run(fit, 400)
    assert_costs(fit, 1.0, rel=1e-3)
    assert fit.costs().error.median < 1e-3
    assert fit.costs().covers(decodes(30, 900))
    assert not fit.costs().covers(decodes(300, 900))


def test_noise_is_averaged_and_stated() -> None:
    fit = RunningFit("device")
    run(fit, 4000, noise=0.1)
    assert_costs(fit, 1.0, rel=0.04)
    assert 0.03 < fit.costs().error.median < 0.12


def test_a_machine_that_became_slower_is_followed() -> None:
    fit = RunningFit("device")
    run(fit, 3000)
    run(fit, 40_000, factor=1.5)
    assert_costs(fit, 1.5, rel=0.02)


def test_decodes_do_not_make_the_cost_of_prompts_unknown() -> None:
    fit = RunningFit("device")
    run(fit, 1000)
    shapes = [decodes(number, 700) for number in range(1, 40)]
    for number in range(30_000):
        shape = shapes[number % len(shapes)]
        fit.add(shape, seconds(shape))
    assert_costs(fit, 1.0, rel=0.02)


def test_what_was_known_before_holds_where_nothing_new_was_seen() -> None:
    chance = random.Random(3)
    shapes = [a_step(chance) for _ in range(400)]
    prior = fit_device([ObservedStep(shape, seconds(shape)) for shape in shapes])
    fit = RunningFit("device", prior)
    for number in range(2000):
        shape = decodes(1 + number % 8, 100 + number % 500)
        fit.add(shape, 1.2 * seconds(shape))
    found = fit.costs()
    assert found.seconds(decodes(4, 300)) == pytest.approx(1.2 * seconds(decodes(4, 300)), rel=0.02)
    assert found.costs_s["prefill_tokens"] == pytest.approx(TRUE["prefill_tokens"], rel=0.05)
    assert found.covers(prefill((0, 500)))


def test_features_that_an_older_profile_does_not_know_get_no_narrow_range() -> None:
    chance = random.Random(3)
    now = fit_device([ObservedStep(s, seconds(s)) for s in (a_step(chance) for _ in range(400))])
    older = {name: each for name, each in now.ranges.items() if name != "rows_above_12"}
    fit = RunningFit("device", replace(now, ranges=older))
    for number in range(60):
        fit.add(decodes(3, 100 + number), seconds(decodes(3, 100 + number)))
    assert "rows_above_12" not in fit.costs().ranges
    assert fit.costs().covers(decodes(50, 500))
    assert not fit.costs().covers(decodes(300, 500))


def test_too_few_steps_give_what_was_known_or_nothing() -> None:
    with pytest.raises(ProfileError, match="0 steps are too few"):
        RunningFit("device").costs()
    prior = fit_device(
        [ObservedStep(decodes(n, 50), seconds(decodes(n, 50))) for n in range(1, 40)]
    )
    assert RunningFit("device", prior).costs() is prior


def test_the_weights_of_a_long_life_stay_numbers() -> None:
    fit = RunningFit("host")
    shape = decodes(3, 100)
    for _ in range(100_000):
        fit.add(shape, 2e-4)
    assert fit.costs().seconds(shape) == pytest.approx(2e-4, rel=1e-3)
