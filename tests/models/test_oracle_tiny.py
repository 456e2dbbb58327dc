"""Logits against Hugging Face ``transformers``, for a small random model of each architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headway.core.plan import NewSequence, RequestId, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sampling import SamplingParams
from headway.models.checkpoint import Checkpoint
from headway.models.config import Llama3RopeScaling, RopeFrequencyFactors
from headway.models.loading import open_checkpoint
from headway.models.rotary import inverse_frequencies
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from headway.executors.torch import TorchExecutor  # noqa: E402 - needs torch

VOCAB, LENGTH = 97, 200

SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "attn_implementation": "eager",
}

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("Llama", {"head_dim": 24, "rope_theta": 500_000.0}),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "linear-rope": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    ),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 40}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
}

Logprobs = npt.NDArray[np.float64]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other are slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Checkpoint]:
    """A model of ``transformers``, and the same one as saved and opened."""
    kind, overrides = CASES[request.param]
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **overrides})
    torch.manual_seed(7)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.15)
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    (path / "tokenizer.json").write_text("{}")
    return model, open_checkpoint(Path(path))


def expected_logprobs(model: Any, token_ids: Sequence[int]) -> Logprobs:
    with torch.no_grad():
        logits = model(torch.tensor([token_ids])).logits[0]
    values: Logprobs = logits.double().log_softmax(-1).numpy()
    return values


def computed_logprobs(
    checkpoint: Checkpoint, token_ids: Sequence[int], chunks: Sequence[int]
) -> Logprobs:
    """All log-probabilities at each position but the last, through the executor."""
    executor = TorchExecutor(checkpoint, num_blocks=40, block_size=8)
    key = SequenceId(1)
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=VOCAB)
    new = NewSequence(key, RequestId("r"), 0, tuple(token_ids), sampling)
    executor.run(StepPlan(0, (), (new,), (TableUpdate(key, 0, tuple(range(39, 0, -1))),)))
    rows, start = [], 0
    for step_id, count in enumerate(chunks, 1):
        result = executor.run(StepPlan(step_id, (Slice(key, start, count, False),)))
        start += count
        for entry in result.prompt_logprobs[key].entries if key in result.prompt_logprobs else ():
            rows.append([value for _, value in sorted(entry.top)])
    return np.array(rows)


@pytest.mark.parametrize("chunks", [[LENGTH], [150, 50], [1] * 20 + [180], [33] * 6 + [2]], ids=len)
def test_logits_agree_with_transformers(case: tuple[Any, Checkpoint], chunks: list[int]) -> None:
    model, checkpoint = case
    token_ids = np.random.default_rng(3).integers(0, VOCAB, LENGTH).tolist()
    expected = expected_logprobs(model, token_ids)[:-1]
    found = computed_logprobs(checkpoint, token_ids, chunks)
    assert found.shape == expected.shape == (LENGTH - 1, VOCAB)
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-5


def test_decoded_tokens_agree_with_transformers(case: tuple[Any, Checkpoint]) -> None:
    model, checkpoint = case
    prompt = np.random.default_rng(4).integers(0, VOCAB, 60).tolist()
    executor = TorchExecutor(checkpoint, num_blocks=40, block_size=8)
    key = SequenceId(1)
    sampling = SamplingParams(max_tokens=30, temperature=0.0)
    new = NewSequence(key, RequestId("r"), 0, tuple(prompt), sampling)
    table = (TableUpdate(key, 0, tuple(range(12))),)
    result = executor.run(StepPlan(0, (Slice(key, 0, 60, True),), (new,), table))
    tokens = [*prompt, result.tokens[key].token_id]
    for step in range(1, 30):
        result = executor.run(StepPlan(step, (Slice(key, len(tokens) - 1, 1, True),)))
        tokens.append(result.tokens[key].token_id)
    greedy = expected_logprobs(model, tokens).argmax(-1)
    assert tokens[60:] == greedy[59:-1].tolist()


def test_the_window_matters() -> None:
    """Or the cases above would prove nothing about it."""
    token_ids = list(range(90))
    values = [
        computed_logprobs(tiny_checkpoint(tiny_config(sliding_window=window)), token_ids, [90])
        for window in (None, 40)
    ]
    assert np.array_equal(values[0][:40], values[1][:40])
    assert np.abs(values[0][40:] - values[1][40:]).max() > 0.1


def test_explicit_frequency_factors_equal_the_scaling_that_made_them() -> None:
    """GGUF files carry Llama 3 scaling as a list of divisors."""
    scaling = Llama3RopeScaling(
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )
    plain = inverse_frequencies(tiny_config())
    scaled = inverse_frequencies(tiny_config(rope_scaling=scaling))
    factors = tuple(float(factor) for factor in plain / scaled)
    assert 1 < len(set(factors)) <= 8
    listed = inverse_frequencies(tiny_config(rope_scaling=RopeFrequencyFactors(factors=factors)))
    np.testing.assert_allclose(listed, scaled, rtol=2e-7)
