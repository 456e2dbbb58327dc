"""Predictors of output length: what is known counts, what is unknown is said to be so."""

from __future__ import annotations

import random

import pytest

from headway.core.config import PredictorName
from headway.core.plan import RequestId
from headway.core.predict import Hint, Learned, MaxTokens, make_predictor
from headway.core.request import Request
from headway.core.sampling import SamplingParams


def a_request(
    prompt: int = 10,
    *,
    max_tokens: int = 1000,
    class_name: str = "default",
    tenant: str = "",
    hint: int | None = None,
) -> Request:
    return Request(
        request_id=RequestId("r"),
        prompt_token_ids=(1,) * prompt,
        sampling=SamplingParams(max_tokens=max_tokens),
        class_name=class_name,
        tenant=tenant,
        expected_output_tokens=hint,
    )


def test_max_tokens_learns_nothing() -> None:
    predictor = MaxTokens()
    predictor.observe(a_request(), 3)
    assert predictor.predict(a_request(max_tokens=77)) == 77


def test_a_first_guess_is_never_above_the_limit() -> None:
    assert Learned().predict(a_request()) == 256
    assert Learned().predict(a_request(max_tokens=20)) == 20
    assert Learned().predict(a_request(max_tokens=0)) == 0


def test_one_observation_already_counts_everywhere() -> None:
    predictor = Learned()
    predictor.observe(a_request(tenant="a"), 10)
    assert predictor.predict(a_request(tenant="a")) < 180
    assert predictor.predict(a_request(500, class_name="other", tenant="b")) < 180


def test_prompt_length_class_and_tenant_are_told_apart() -> None:
    predictor = Learned()
    lengths = {
        (8, "chat", "a"): 10,
        (900, "chat", "a"): 200,
        (900, "chat", "b"): 400,
        (900, "batch", "a"): 700,
    }
    for _ in range(200):
        for (prompt, name, tenant), length in lengths.items():
            predictor.observe(a_request(prompt, class_name=name, tenant=tenant), length)
    for (prompt, name, tenant), length in lengths.items():
        guess = predictor.predict(a_request(prompt, class_name=name, tenant=tenant))
        assert guess == pytest.approx(length, rel=0.1)
    newcomer = predictor.predict(a_request(900, class_name="chat", tenant="new"))
    assert newcomer == pytest.approx(300, rel=0.1)  # of all tenants with such prompts
    other_prompt = predictor.predict(a_request(64, class_name="chat", tenant="a"))
    assert other_prompt == pytest.approx(203, rel=0.1)  # of the class


def test_what_changed_is_learned_anew() -> None:
    predictor = Learned()
    for _ in range(5000):
        predictor.observe(a_request(), 500)
    for _ in range(5000):
        predictor.observe(a_request(), 20)
    assert predictor.predict(a_request()) == pytest.approx(20, rel=0.2)


def test_cells_are_bounded_and_the_least_recent_leaves() -> None:
    predictor = Learned(max_cells=100)
    predictor.observe(a_request(tenant="old"), 900)
    old = predictor.predict(a_request(tenant="old"))
    for number in range(3000):
        predictor.observe(a_request(tenant=f"t{number}"), 5)
        if number % 20 == 0:
            predictor.observe(a_request(tenant="busy"), 300)
    assert len(predictor._cells) <= 100
    assert predictor.predict(a_request(tenant="old")) < old / 5, "it is a newcomer again"
    assert predictor.predict(a_request(tenant="busy")) > 250


def test_a_hint_goes_before_what_was_learned() -> None:
    predictor = Hint(Learned())
    for _ in range(50):
        predictor.observe(a_request(), 100)
    assert predictor.predict(a_request(hint=7)) == 7
    assert predictor.predict(a_request(hint=7, max_tokens=3)) == 3
    assert predictor.predict(a_request()) == pytest.approx(100, rel=0.1)


def test_guesses_lie_between_nothing_and_the_limit() -> None:
    chance = random.Random(5)
    predictor = Learned(max_cells=50)
    for _ in range(3000):
        request = a_request(
            chance.choice((1, 2, 15, 16, 17, 31, 32, 1000)),
            max_tokens=chance.randint(0, 400),
            class_name=chance.choice("ab"),
            tenant=chance.choice("xyz"),
        )
        assert 0 <= predictor.predict(request) <= request.sampling.max_tokens
        predictor.observe(request, chance.randint(0, request.sampling.max_tokens))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (PredictorName.MAX_TOKENS, MaxTokens),
        (PredictorName.LEARNED, Learned),
        (PredictorName.HINT, Hint),
    ],
)
def test_predictors_are_made_by_name(name: PredictorName, kind: type) -> None:
    assert type(make_predictor(name)) is kind


def test_too_few_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="max_cells must be at least 3, not 2"):
        Learned(max_cells=2)
