"""The embedded default model against Hugging Face ``transformers`` in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.plan import NewSequence, RequestId, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sampling import SamplingParams
from headway.models.checkpoint import Checkpoint
from headway.models.loading import open_checkpoint
from headway.text.loading import load_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers_oracle import oracle_logits, smollm2_by_transformers  # noqa: E402 - needs torch

from headway.executors.torch import TorchExecutor  # noqa: E402 - needs torch

pytestmark = pytest.mark.slow

NUM_OUTPUTS, BLOCK_SIZE, BLOCKS_EACH = 64, 16, 10

QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about rain.",
    "List three prime numbers above 50.",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "Who wrote Hamlet?",
    "Explain recursion to a child.",
    "def fibonacci(n):",
    "Summarise: the train was late, so we missed the concert.",
    "Is 17 * 3 larger than 50?",
    "Name a mammal that lays eggs.",
    "Fix the grammar: me and him goes home.",
    "Tell me a joke about computers.",
    "What does HTTP status 404 mean?",
    "Schreibe einen Satz auf Deutsch.",
    "How many legs do two spiders have?",
    "Suggest a name for a grey cat.",
    "What happens when water freezes?",
    "Say hello.",
]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other are slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def checkpoint(smollm2_gguf: Path) -> Checkpoint:
    return open_checkpoint(smollm2_gguf)


@pytest.fixture(scope="module")
def oracle(smollm2_gguf: Path) -> Any:
    return smollm2_by_transformers(smollm2_gguf)


@pytest.fixture(scope="module")
def prompts(checkpoint: Checkpoint) -> list[list[int]]:
    assets = checkpoint.tokenizer
    tokenizer = load_tokenizer(assets.tokenizer_json, assets.tokenizer_config, assets.gguf_metadata)
    frame = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    return [tokenizer.encode(frame.format(q), add_special_tokens=False) for q in QUESTIONS]


def start(prompts: Sequence[Sequence[int]], **sampling: Any) -> StepPlan:
    """A step with every prompt whole, each sequence in blocks of its own."""
    params = SamplingParams(**{"max_tokens": NUM_OUTPUTS, "temperature": 0.0, **sampling})
    keys = [SequenceId(i) for i in range(len(prompts))]
    return StepPlan(
        0,
        tuple(Slice(k, 0, len(p), True) for k, p in zip(keys, prompts, strict=True)),
        tuple(
            NewSequence(k, RequestId(f"{k}"), 0, tuple(p), params)
            for k, p in zip(keys, prompts, strict=True)
        ),
        tuple(
            TableUpdate(k, 0, tuple(range(k * BLOCKS_EACH, (k + 1) * BLOCKS_EACH))) for k in keys
        ),
    )


def greedy_answers(executor: TorchExecutor, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """All prompts in one batch; the answers, of NUM_OUTPUTS tokens each."""
    result = executor.run(start(prompts))
    answers = [[result.tokens[SequenceId(i)].token_id] for i in range(len(prompts))]
    for step in range(1, NUM_OUTPUTS):
        slices = [
            Slice(SequenceId(i), len(prompt) + step - 1, 1, True)
            for i, prompt in enumerate(prompts)
        ]
        result = executor.run(StepPlan(step, tuple(slices)))
        for key, token in result.tokens.items():
            answers[key].append(token.token_id)
    return answers


def test_log_probabilities_agree(
    checkpoint: Checkpoint, oracle: Any, prompts: list[list[int]]
) -> None:
    """At every position of a prompt, for the whole vocabulary."""
    executor = TorchExecutor(checkpoint, num_blocks=64, block_size=BLOCK_SIZE)
    chosen = [prompts[0], prompts[9], prompts[15]]
    plan = start(chosen, logprobs=checkpoint.config.vocab_size, prompt_logprobs=49_152)
    result = executor.run(plan)
    for key, prompt in enumerate(chosen):
        expected = torch.from_numpy(oracle_logits(oracle, prompt)).double().log_softmax(-1).numpy()
        entries = [*result.prompt_logprobs[SequenceId(key)].entries]
        last = result.tokens[SequenceId(key)].logprobs
        assert last is not None
        found = np.empty_like(expected)
        for row, entry in zip(found, [*entries, last], strict=True):
            ids, values = zip(*entry.top, strict=True)
            row[list(ids)] = values
        assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-4


def test_greedy_answers_agree(
    checkpoint: Checkpoint, oracle: Any, prompts: list[list[int]]
) -> None:
    """If each of our tokens is the oracle's choice after those before, so is the answer."""
    executor = TorchExecutor(
        checkpoint, num_blocks=len(prompts) * BLOCKS_EACH, block_size=BLOCK_SIZE
    )
    for prompt, answer in zip(prompts, greedy_answers(executor, prompts), strict=True):
        logits = oracle_logits(oracle, [*prompt, *answer])
        choices = logits.argmax(-1)[len(prompt) - 1 : -1]
        assert answer == choices.tolist()


def test_bfloat16_answers_are_sensible(
    checkpoint: Checkpoint, oracle: Any, prompts: list[list[int]]
) -> None:
    """Each token is nearly always the oracle's first choice, and never far from it."""
    executor = TorchExecutor(
        checkpoint, num_blocks=8 * BLOCKS_EACH, block_size=BLOCK_SIZE, dtype="bfloat16"
    )
    gaps = []
    for prompt, answer in zip(prompts[:8], greedy_answers(executor, prompts[:8]), strict=True):
        logits = oracle_logits(oracle, [*prompt, *answer])[len(prompt) - 1 : -1]
        gaps.extend(logits.max(-1) - np.take_along_axis(logits, np.array(answer)[:, None], 1)[:, 0])
    assert np.mean(np.array(gaps) == 0) > 0.95
    assert max(gaps) < 1.0
