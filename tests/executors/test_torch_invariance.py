"""The same sequence has the same bits alone, in any batch and in any chunks.

Observed through the executor: log-probabilities of the whole vocabulary, at every prompt position
and every drawn token, compared for exact equality.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headway.core.plan import (
    NewSequence,
    RequestId,
    SequenceId,
    Slice,
    StepPlan,
    TableUpdate,
    TokenLogprobs,
)
from headway.core.ports import Executor
from headway.core.sampling import SamplingParams
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

torch = pytest.importorskip("torch")

from headway.executors.torch import TorchExecutor  # noqa: E402 - needs torch

VOCAB, NUM_BLOCKS, PROMPT, OUTPUT = 97, 200, 150, 12

SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {},
    "one-kv-head": {"num_heads": 3, "num_kv_heads": 1, "qk_norm": True, "architecture": "qwen3"},
    "window": {"sliding_window": 37, "architecture": "mistral"},
    "wide": {
        "hidden_size": 320,
        "intermediate_size": 832,
        "num_heads": 10,
        "num_kv_heads": 5,
        "head_dim": 32,
        "attention_bias": True,
        "architecture": "qwen2",
    },
}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["packed", "plain"])
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply: oneDNN where there is one, and the fallback."""
    if request.param == "plain":
        monkeypatch.setattr("headway.kernels.torch_linear._onednn_computes", lambda _: False)
    return str(request.param)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SHAPES[request.param]


def observed(sequence_id: int, length: int = PROMPT) -> NewSequence:
    rng = random.Random(sequence_id)
    sampling = SamplingParams(
        max_tokens=OUTPUT, temperature=1.0, seed=3, logprobs=VOCAB, prompt_logprobs=VOCAB
    )
    prompt = tuple(rng.randrange(VOCAB) for _ in range(length))
    return NewSequence(SequenceId(sequence_id), RequestId(f"{sequence_id}"), 0, prompt, sampling)


def play(
    executor: Executor,
    subject: NewSequence,
    chunk: int,
    *,
    neighbours: int = 0,
    block_size: int = 8,
    preempt_at: int | None = None,
) -> list[TokenLogprobs]:
    """Run a sequence to its end beside others that come and go; return all that was observed."""
    rng = random.Random(chunk * 100 + neighbours)
    free = rng.sample(range(NUM_BLOCKS), NUM_BLOCKS)
    needed = -(-(PROMPT + OUTPUT) // block_size)
    held = [free.pop() for _ in range(needed)]
    crowd = _Crowd(rng, free, neighbours, block_size)
    key, length = subject.sequence_id, len(subject.prompt_token_ids)
    news, tables = [subject], [TableUpdate(key, 0, tuple(held))]
    found: dict[int, TokenLogprobs] = {}
    num_tokens, done, step_id = length, 0, 0
    while num_tokens < length + OUTPUT:
        if step_id == preempt_at:
            done = 0
            free.extend(held)
            held = [free.pop(0) for _ in range(needed)]
            tables = [TableUpdate(key, 0, tuple(held))]
        count = min(chunk, num_tokens - done)
        is_last = done + count == num_tokens
        others = crowd.step()
        slices = [*others.slices, Slice(key, done, count, is_last)]
        rng.shuffle(slices)
        result = executor.run(
            StepPlan(
                step_id,
                tuple(slices),
                (*others.new_sequences, *news),
                (*others.table_updates, *tables),
                others.released,
            )
        )
        assert not result.failures
        done, step_id, news, tables = done + count, step_id + 1, [], []
        if scores := result.prompt_logprobs.get(key):
            found.update({scores.start + i: entry for i, entry in enumerate(scores.entries)})
        if is_last:
            logprobs = result.tokens[key].logprobs
            assert logprobs is not None
            found[num_tokens] = logprobs
            num_tokens += 1
    executor.run(StepPlan(step_id, (), released=(key, *crowd.live)))
    assert sorted(found) == list(range(1, length + OUTPUT))
    return [found[position] for position in sorted(found)]


class _Crowd:
    """Neighbours of random lengths, in random chunks, each of which leaves after a while."""

    def __init__(self, rng: random.Random, free: list[int], size: int, block_size: int) -> None:
        self._rng, self._free, self._size, self._block_size = rng, free, size, block_size
        self._next_id = 1000
        self._state: dict[SequenceId, tuple[int, int, list[int]]] = {}

    @property
    def live(self) -> tuple[SequenceId, ...]:
        return tuple(self._state)

    def step(self) -> StepPlan:
        gone = [
            key for key, (done, _, _) in self._state.items() if done and self._rng.random() < 0.2
        ]
        for key in gone:
            self._free.extend(self._state.pop(key)[2])
        arrived = [self._arrive() for _ in range(self._size - len(self._state))]
        updates = [
            TableUpdate(n.sequence_id, 0, tuple(self._state[n.sequence_id][2])) for n in arrived
        ]
        slices = [s for key in self._state if (s := self._advance(key))]
        return StepPlan(0, tuple(slices), tuple(arrived), tuple(updates), tuple(gone))

    def _arrive(self) -> NewSequence:
        self._next_id += 1
        length = self._rng.randrange(1, 60)
        new = observed(self._next_id, length)
        held = [self._free.pop() for _ in range(-(-length // self._block_size))]
        self._state[new.sequence_id] = (0, length, held)
        sampling = replace(new.sampling, logprobs=None, prompt_logprobs=None)
        return replace(new, sampling=sampling)

    def _advance(self, key: SequenceId) -> Slice | None:
        done, length, held = self._state[key]
        count = min(self._rng.choice([1, 2, 5, 40]), length - done)
        if count == 0:
            return None
        self._state[key] = (done + count, length, held)
        return Slice(key, done, count, sample=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_chunks_neighbours_threads_and_preemption_change_no_bit(
    dtype: Any, shape: dict[str, Any], products: str
) -> None:
    def make(num_threads: int) -> Executor:
        checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB, **shape))
        return TorchExecutor(
            checkpoint, num_blocks=NUM_BLOCKS, block_size=8, dtype=dtype, num_threads=num_threads
        )

    subject = observed(1)
    executor = make(1)
    expected = play(executor, subject, PROMPT)
    for chunk, neighbours in ((PROMPT, 15), (64, 0), (16, 15), (7, 3), (1, 0)):
        found = play(executor, subject, chunk, neighbours=neighbours)
        assert found == expected, (chunk, neighbours)
    assert play(executor, subject, 48, neighbours=2, preempt_at=7) == expected
    executor = make(2)
    for chunk, neighbours in ((PROMPT, 0), (64, 15)):
        found = play(executor, subject, chunk, neighbours=neighbours)
        assert found == expected, ("2 threads", chunk, neighbours)


@pytest.mark.parametrize("block_size", [1, 3, 16, 200])
def test_any_block_size_gives_the_same_answer_in_any_chunks(block_size: int) -> None:
    checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB))
    executor = TorchExecutor(checkpoint, num_blocks=NUM_BLOCKS, block_size=block_size)
    subject = observed(1)
    expected = play(executor, subject, PROMPT, block_size=block_size)
    assert play(executor, subject, 11, block_size=block_size) == expected
