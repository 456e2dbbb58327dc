"""Sampling against a naive oracle that sorts everything, and at its edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.plan import SampledToken
from headway.core.sampling import SamplingParams
from headway.executors.draw import Draw, _bias_arrays
from headway.executors.sampling import (
    SamplingError,
    sample,
    token_logprobs,
    uniform,
)

Logits = npt.NDArray[np.float32]


def draw(
    *,
    index: int = 0,
    position: int = 0,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    **params: Any,
) -> Draw:
    fields: dict[str, Any] = {"max_tokens": 99, "temperature": 1.0, **params}
    return Draw(SamplingParams(**fields), index, position, prompt, Counter(output))


def one(logits: Sequence[float] | Logits, what: Draw) -> int:
    token = sample(np.asarray([logits], dtype=np.float32), [what])[0]
    assert isinstance(token, SampledToken)
    return token.token_id


def distribution(logits: Sequence[float], what: Draw) -> dict[int, float]:
    """The oracle: probabilities of what can be drawn, in order, written out plainly."""
    params, values = what.params, [float(np.float32(x)) for x in logits]
    for token_id, bias in params.logit_bias:
        values[token_id] += bias
    for i in {*what.prompt_token_ids, *what.output_counts}:
        p = params.repetition_penalty
        values[i] = values[i] / p if values[i] > 0 else values[i] * p
    for i, times in what.output_counts.items():
        values[i] -= params.frequency_penalty * times + params.presence_penalty
    if what.position < params.min_tokens:
        for i in params.stop_token_ids:
            values[i] = -math.inf
    highest = max(values)
    if params.temperature == 0:
        return {values.index(highest): 1.0}
    weights = [math.exp((x - highest) / params.temperature) for x in values]
    order = sorted(range(len(values)), key=lambda i: (-weights[i], i))
    order = [i for i in order if weights[i] >= params.min_p]
    order = order[: params.top_k or None]
    total, mass, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        kept.append(i)
        mass += weights[i]
        if params.top_p < 1 and mass >= params.top_p * total:
            break
    return {i: weights[i] / mass for i in kept}


def invert(probabilities: dict[int, float], number: float) -> set[int]:
    """Tokens that a uniform number may give, with the slack of rounding."""
    below, found = 0.0, set()
    for token_id, probability in probabilities.items():
        if below - 1e-9 <= number <= below + probability + 1e-9:
            found.add(token_id)
        below += probability
    return found


coarse = st.floats(-6, 6).map(lambda x: round(x * 4) / 4)  # so that ties occur


@given(
    logits=st.lists(coarse, min_size=1, max_size=40),
    temperature=st.sampled_from([0.0, 1e-5, 0.3, 1.0, 2.5]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 1000]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    penalties=st.sampled_from([(1.0, 0.0, 0.0), (1.3, 0.5, 0.25), (0.7, -1.0, 0.0)]),
    bias=st.lists(
        st.tuples(st.integers(0, 39), st.sampled_from([-100.0, -1.0, 100.0])), max_size=3
    ),
    history=st.lists(st.integers(0, 39), max_size=6),
    seed=st.integers(-(2**63), 2**64),
)
def test_draws_agree_with_the_oracle(
    logits: list[float],
    temperature: float,
    top_p: float,
    top_k: int,
    min_p: float,
    penalties: tuple[float, float, float],
    bias: list[tuple[int, float]],
    history: list[int],
    seed: int,
) -> None:
    size = len(logits)
    what = draw(
        position=len(history),
        prompt=[i % size for i in history[:2]],
        output=[i % size for i in history],
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=penalties[0],
        presence_penalty=penalties[1],
        frequency_penalty=penalties[2],
        logit_bias=tuple((i % size, value) for i, value in bias),
        seed=seed,
    )
    expected = distribution(logits, what)
    assert one(logits, what) in invert(expected, uniform(seed, 0, len(history)))


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
@pytest.mark.parametrize(
    "params", [{}, {"top_p": 0.95}, {"top_k": 300}, {"min_p": 0.02}, {"top_p": 0.1, "top_k": 5000}]
)
def test_a_large_vocabulary_agrees_with_the_oracle(scale: float, params: dict[str, Any]) -> None:
    logits = np.round(np.random.default_rng(1).standard_normal(6000) * scale, 2).astype(np.float32)
    expected = distribution(logits.tolist(), draw(**params))
    for position in range(40):
        token_id = one(logits, draw(position=position, seed=5, **params))
        assert token_id in invert(expected, uniform(5, 0, position))


def test_frequencies_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.05, 0.2, 0.25]))
    draws = [draw(position=position, seed=11) for position in range(4000)]
    rows = np.repeat(logits[None].astype(np.float32), len(draws), axis=0)
    counts = Counter(t.token_id for t in sample(rows, draws) if isinstance(t, SampledToken))
    for token_id, share in enumerate([0.5, 0.05, 0.2, 0.25]):
        sigma = math.sqrt(share * (1 - share) / len(draws))
        assert abs(counts[token_id] / len(draws) - share) < 4 * sigma


def test_uniform_numbers_differ_in_each_argument() -> None:
    numbers = {uniform(s, i, p) for s in range(12) for i in range(12) for p in range(12)}
    assert len(numbers) == 12**3
    assert all(0 <= number < 1 for number in numbers)
    assert uniform(1, 11, 1) != uniform(11, 1, 1)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 500)).astype(np.float32)
    draws = [
        draw(position=i, seed=i, temperature=float(i % 3), top_k=i % 4, logprobs=i % 2 or None)
        for i in range(20)
    ]
    together = sample(rows, draws)
    assert together == [sample(rows[i : i + 1], [draws[i]])[0] for i in range(20)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_equals_go_to_the_lowest_id(temperature: float) -> None:
    assert one([1, 3, 3, 3], draw(temperature=temperature, top_k=1)) == 1


def test_bias_of_a_hundred_decides() -> None:
    up, down = ((2, 100.0),), ((0, -100.0), (1, -100.0))
    for position in range(30):
        assert one([5, 4, 0], draw(position=position, logit_bias=up)) == 2
        assert one([5, 4, 0], draw(position=position, logit_bias=down)) == 2
    assert one([5, 4, 0], draw(temperature=0.0, logit_bias=down)) == 2


@pytest.mark.parametrize("temperature", [1e-5, 1e-300, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert one([0, 2, 1.9, -40], draw(temperature=temperature)) == 1


def test_a_huge_temperature_is_uniform() -> None:
    seen = {one([9, -9, 0], draw(temperature=1e6, position=i)) for i in range(50)}
    assert seen == {0, 1, 2}


def test_stop_ids_wait_for_min_tokens() -> None:
    params: dict[str, Any] = {"min_tokens": 2, "stop_token_ids": (1,), "temperature": 0.0}
    assert one([0, 9, 1], draw(position=1, **params)) == 2
    assert one([0, 9, 1], draw(position=2, **params)) == 1


def test_nothing_left_to_draw_fails_alone() -> None:
    all_stop = draw(min_tokens=1, stop_token_ids=(0, 1))
    bad, good = sample(np.zeros((2, 2), dtype=np.float32), [all_stop, draw()])
    assert isinstance(bad, SamplingError)
    assert isinstance(good, SampledToken)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_fail_alone(value: float, temperature: float) -> None:
    rows = np.zeros((3, 4), dtype=np.float32)
    rows[1, 2] = value
    first, bad, last = sample(rows, [draw(temperature=temperature)] * 3)
    assert isinstance(bad, SamplingError)
    assert isinstance(first, SampledToken)
    assert isinstance(last, SampledToken)


def test_logprobs_are_of_the_raw_logits() -> None:
    what = draw(temperature=0.0, logit_bias=((3, 100.0),), logprobs=2)
    token = sample(np.array([[0, 1, 1, -2]], dtype=np.float32), [what])[0]
    assert isinstance(token, SampledToken)
    assert token.logprobs is not None
    normaliser = math.log(1 + 2 * math.e + math.exp(-2))
    assert token.logprobs.token_id == token.token_id == 3
    assert token.logprobs.logprob == pytest.approx(-2 - normaliser, abs=1e-12)
    assert [i for i, _ in token.logprobs.top] == [1, 2]
    assert token.logprobs.top[0][1] == pytest.approx(1 - normaliser, abs=1e-12)


def test_logprobs_sum_to_one_even_far_from_zero() -> None:
    logits = np.array([1e4, 1e4 - 1, -1e4], dtype=np.float32)
    (scores,) = token_logprobs(logits[None], [(0, 2, 3)])
    assert scores.logprob == pytest.approx(-2e4 - math.log(1 + math.exp(-1)))
    assert sum(math.exp(value) for _, value in scores.top) == pytest.approx(1, abs=1e-12)


def test_a_bias_is_turned_into_arrays_once_and_never_taken_for_another() -> None:
    shared = SamplingParams(max_tokens=9, temperature=0, logit_bias=((1, 2.0), (1, 2.0), (2, 3.5)))
    draws = [Draw(shared, index, 0, (), Counter()) for index in range(3)]
    assert [one([0.0, 0.0, 0.0], each) for each in draws] == [1, 1, 1]  # 4 is more than 3.5
    assert _bias_arrays.of(shared.logit_bias)[0] is _bias_arrays.of(shared.logit_bias)[0]
    for best in range(600):  # more than are kept, and ids of freed objects come again
        assert (
            one(np.zeros(600, dtype=np.float32), draw(temperature=0, logit_bias=((best, 1.0),)))
            == best
        )


@pytest.mark.parametrize("penalty", [5e-324, 0.01, 100.0, 1e308])
def test_an_extreme_penalty_warns_of_nothing(penalty: float) -> None:
    what = draw(repetition_penalty=penalty, prompt=(0, 1))
    (token,) = sample(np.asarray([[3e38, -3e38, 0.0]], dtype=np.float32), [what])
    assert isinstance(token, SampledToken | SamplingError)
