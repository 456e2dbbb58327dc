"""The Python API with the real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import LLM, GenerationParams

pytest.importorskip("headway.kernels._native", reason="the native kernels are not built")

pytestmark = pytest.mark.slow

QUESTION = "What is the capital of Germany?"
GREEDY = GenerationParams(max_tokens=16, temperature=0)


@pytest.fixture(scope="module")
def real(smollm2_gguf: Path) -> Iterator[LLM]:
    with LLM(smollm2_gguf, num_blocks=128) as llm:
        yield llm


def test_the_capital_of_germany(real: LLM) -> None:
    output = real.chat(QUESTION, GREEDY)
    assert "Berlin" in output.text
    assert output.choices[0].finish_reason == "stop"


def test_the_pieces_add_up(real: LLM) -> None:
    pieces = list(real.stream(QUESTION, GREEDY))  # how many depends on who is faster
    assert "".join(pieces) == real.chat(QUESTION, GREEDY).text


def test_prompts_of_one_call_get_what_they_get_alone(real: LLM) -> None:
    prompts = ["The capital of France is", "Once upon a time", "1, 2, 3, 4,"]
    together = real.generate(prompts, GREEDY)
    assert together == [real.generate(prompt, GREEDY)[0] for prompt in prompts]
    assert "Paris" in together[0].text
    assert real.generate([output.prompt_token_ids for output in together], GREEDY) == together


def test_choices_repeat_with_their_seed(real: LLM) -> None:
    params = GenerationParams(n=2, seed=5, max_tokens=12, temperature=0.9)
    (one,), (other,) = real.generate("Once upon", params), real.generate("Once upon", params)
    assert one == other
    assert one.choices[0].text != one.choices[1].text


def test_log_probabilities_know_paris(real: LLM) -> None:
    params = GenerationParams(max_tokens=1, temperature=0, logprobs=3)
    (output,) = real.generate("The capital of France is", params)
    (position,) = output.choices[0].logprobs
    assert position.token.text == " Paris"
    assert position.top[0] == position.token
    assert len(position.top) == 3
