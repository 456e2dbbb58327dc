"""The value rules: what means nothing is refused, and the message names the parameter."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import ConfigError, RequestError
from headway.generation.params import GenerationParams, model_defaults, validate

VOCAB_SIZE = 100
NAN, INF = float("nan"), float("inf")

BAD: list[tuple[str, Any]] = [
    *[("temperature", value) for value in (-0.1, 2.1, NAN, INF, -INF)],
    *[("top_p", value) for value in (0.0, -0.5, 1.01, NAN, INF)],
    *[("min_p", value) for value in (-0.1, 1.1, NAN)],
    *[("top_k", value) for value in (-2, 2**63)],
    *[("presence_penalty", value) for value in (-2.1, 2.1, NAN, INF)],
    *[("frequency_penalty", value) for value in (-2.1, 2.1, NAN, INF)],
    *[("repetition_penalty", value) for value in (0.0, -1.0, 0.0099, 100.5, 5e-324, NAN, INF)],
    *[("n", value) for value in (0, -1, 129, 10**6)],
    *[("max_tokens", value) for value in (-1, 2**63)],
    ("min_tokens", -1),
    *[("seed", value) for value in (2**63, -(2**63) - 1)],
    *[("logprobs", value) for value in (-1, 21)],
    *[("prompt_logprobs", value) for value in (-1, 21)],
    *[("stop", value) for value in (("",), ("a", "b", "c", "d", "e"), ("x" * 1025,))],
    ("stop", ("x" * 512, "y" * 513)),
    ("stop", ["a"] * 100_000),
    ("logit_bias", dict.fromkeys(range(1025), 1.0)),
    *[("stop_token_ids", (value,)) for value in (VOCAB_SIZE, -1, 2**40, 10**300)],
    *[("logit_bias", {value: 1.0}) for value in (VOCAB_SIZE, -1, 2**40)],
    *[("logit_bias", {1: value}) for value in (NAN, INF, 100.5, -100.5)],
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_b31_b40_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        validate(GenerationParams(**{name: value}), VOCAB_SIZE)
    assert caught.value.param == name
    assert caught.value.status == 400
    assert name in str(caught.value)
    assert len(str(caught.value)) < 200


GOOD: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 2.0, "top_p": 1.0, "min_p": 1.0, "top_k": -1},
    {"top_p": 1e-300, "top_k": 0, "min_p": 0.0},
    {"stop": ("x" * 512, "y" * 512)},
    {"repetition_penalty": 100},
    {"repetition_penalty": 0.01, "presence_penalty": -2.0, "frequency_penalty": 2.0},
    {"n": 128},
    {"max_tokens": 0},
    {"max_tokens": 5, "min_tokens": 5},
    {"min_tokens": 5},
    {"seed": 2**63 - 1},
    {"seed": -(2**63)},
    {"stop": ("a", "b", "c", "d")},
    {"stop": ["a"], "stop_token_ids": [1]},
    {"temperature": 1, "top_p": 1, "min_p": 0, "presence_penalty": 1, "logit_bias": {1: 2}},
    {"stop_token_ids": (0, VOCAB_SIZE - 1), "logit_bias": {0: -100.0, 99: 100.0}},
    {"logprobs": 0, "prompt_logprobs": 20},
]


WRONG_TYPES: list[tuple[str, Any]] = [
    *[("n", value) for value in (1.5, "2", True, None, [1])],
    *[("max_tokens", value) for value in (2.5, 3.0, "3", True, NAN)],
    *[("min_tokens", value) for value in (1.0, "1", False, None)],
    *[("top_k", value) for value in (1.5, "5", True)],
    *[("seed", value) for value in (1.5, "7", True)],
    *[("logprobs", value) for value in (1.0, "1", True)],
    *[("prompt_logprobs", value) for value in (1.0, True)],
    *[("temperature", value) for value in ("1", True, [], 1j, 10**400)],
    *[("top_p", value) for value in ("1", True, 10**400)],
    *[("min_p", value) for value in ("0", False)],
    *[("repetition_penalty", value) for value in ("1", True, 10**400)],
    *[("presence_penalty", value) for value in ("1", None, True)],
    *[("frequency_penalty", value) for value in ("1", None, True)],
    *[("logit_bias", value) for value in ({"1": 3}, {1.0: 3}, {True: 3}, {1: "3"}, {1: None})],
    *[("logit_bias", value) for value in (None, [(1, 2)], "1", {1: True}, {1: 10**400})],
    *[("stop", value) for value in (None, 1, b"a", (1,), ("a", None), {"a"}, {"a": 1})],
    *[("stop_token_ids", value) for value in (None, 1, "1", (1.0,), ("1",), (True,), {1})],
    *[("ignore_eos", value) for value in (None, 1, "yes")],
    ("include_stop_str_in_output", 0),
    ("skip_special_tokens", "no"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        validate(GenerationParams(**{name: value}), VOCAB_SIZE)
    assert caught.value.param == name
    assert f"'{name}'" in str(caught.value)
    assert len(str(caught.value)) < 200


def test_every_parameter_is_checked_for_its_type() -> None:
    assert {name for name, _ in WRONG_TYPES} == set(GenerationParams.__dataclass_fields__)


@pytest.mark.parametrize("params", [None, {"n": 1}, GenerationParams])
def test_what_is_no_set_of_parameters_is_refused(params: Any) -> None:
    with pytest.raises(RequestError) as caught:
        validate(params, VOCAB_SIZE)
    assert caught.value.param == "params"


@pytest.mark.parametrize(
    ("given", "strings"),
    [("abc", ("abc",)), ((), ()), (["a", "b"], ("a", "b")), (("a",), ("a",))],
)
def test_one_stop_string_needs_no_list(given: Any, strings: tuple[str, ...]) -> None:
    params = GenerationParams(stop=given)
    validate(params, VOCAB_SIZE)
    assert params.stop_strings == strings


def test_an_empty_stop_string_is_refused_without_a_list_too() -> None:
    with pytest.raises(RequestError, match="stop"):
        validate(GenerationParams(stop=""), VOCAB_SIZE)


@pytest.mark.parametrize("values", GOOD)
def test_the_ends_of_each_range_are_allowed(values: dict[str, Any]) -> None:
    validate(GenerationParams(**values), VOCAB_SIZE)


def test_min_tokens_beyond_max_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="min_tokens") as caught:
        validate(GenerationParams(max_tokens=3, min_tokens=4), VOCAB_SIZE)
    assert caught.value.param == "min_tokens"


def test_greedy_choices_would_all_be_the_same() -> None:
    with pytest.raises(RequestError) as caught:
        validate(GenerationParams(n=2, temperature=0.0), VOCAB_SIZE)
    assert caught.value.param == "n"


def test_model_defaults_come_from_the_generation_config() -> None:
    config = {"temperature": 0.6, "top_k": 20, "top_p": None, "eos_token_id": [1, 2], "x": "y"}
    defaults = model_defaults(config, VOCAB_SIZE)
    assert defaults.temperature == 0.6
    assert defaults.top_k == 20
    assert defaults.top_p == 1.0


@pytest.mark.parametrize(
    "config",
    [{"temperature": "hot"}, {"top_k": "5"}, {"top_p": [2]}, {"temperature": True}, {"min_p": NAN}],
)
def test_an_unusable_generation_config_is_a_config_error(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="generation config"):
        model_defaults(config, VOCAB_SIZE)


def test_whole_numbers_may_be_written_as_floats() -> None:
    defaults = model_defaults({"top_k": 50.0, "temperature": 1}, VOCAB_SIZE)
    assert defaults.top_k == 50
    assert isinstance(defaults.top_k, int)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 3.0),
        ("top_p", 0.0),
        ("top_p", 2),
        ("top_k", 1.5),
        ("top_k", INF),
        ("min_p", -1.0),
        ("repetition_penalty", 0.0),
    ],
)
def test_an_unusual_generation_config_is_only_warned_of(
    name: str, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"min_p" if name == "top_p" else "top_p": 0.5}
    assert model_defaults({name: value, **good}, VOCAB_SIZE) == model_defaults(good, VOCAB_SIZE)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{name} = {value}" in record.getMessage()
    assert "generation_config.json" in record.getMessage()
