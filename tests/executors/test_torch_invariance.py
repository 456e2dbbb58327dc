"""The same sequence has the same bits alone, in any batch, in any chunks, padded and swapped.

Observed through the executor: log-probabilities of the whole vocabulary, at every prompt position
and every drawn token, compared for exact equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from executor_play import NUM_BLOCKS, NUM_SWAP_BLOCKS, PROMPT, SHAPES, VOCAB, Play, observed

from headway.core.ports import Executor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

torch = pytest.importorskip("torch")

from headway.executors.torch import TorchExecutor  # noqa: E402 - needs torch

Make = Callable[[int], Executor]


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


@pytest.fixture(params=["float32", "bfloat16"])
def make(request: pytest.FixtureRequest, shape: dict[str, Any], products: str) -> Make:
    """Makes executors with that many threads."""

    def made(num_threads: int) -> Executor:
        checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB, **shape))
        return TorchExecutor(
            checkpoint,
            num_blocks=NUM_BLOCKS,
            num_swap_blocks=NUM_SWAP_BLOCKS,
            block_size=8,
            dtype=request.param,
            num_threads=num_threads,
        )

    return made


def test_chunks_neighbours_threads_and_preemption_change_no_bit(make: Make) -> None:
    subject = observed(1)
    executor = make(1)
    expected = Play(executor=executor, chunk=PROMPT).observe(subject)
    for chunk, neighbours in ((PROMPT, 15), (64, 0), (16, 15), (7, 3), (1, 0)):
        play = Play(executor=executor, chunk=chunk, neighbours=neighbours)
        assert play.observe(subject) == expected, (chunk, neighbours)
    play = Play(executor=executor, chunk=48, neighbours=2, recompute_at=7)
    assert play.observe(subject) == expected
    executor = make(2)
    for chunk, neighbours in ((PROMPT, 0), (64, 15)):
        play = Play(executor=executor, chunk=chunk, neighbours=neighbours)
        assert play.observe(subject) == expected, ("2 threads", chunk, neighbours)


def test_padding_and_swapping_change_no_bit(make: Make) -> None:
    subject = observed(1)
    executor = make(1)
    expected = Play(executor=executor, chunk=PROMPT).observe(subject)
    for chunk, neighbours in ((PROMPT, 0), (PROMPT, 9), (31, 3)):
        play = Play(executor=executor, chunk=chunk, neighbours=neighbours, padded=True)
        assert play.observe(subject) == expected, ("padded", chunk, neighbours)
    play = Play(executor=executor, chunk=33, neighbours=5, swap_at=(2, 7, 12))
    assert play.observe(subject) == expected, "swapped"
    play = Play(executor=executor, chunk=60, neighbours=4, padded=True, swap_at=(2, 8))
    assert play.observe(subject) == expected, "padded and swapped"
    play = Play(executor=make(2), chunk=60, neighbours=4, padded=True, swap_at=(2, 8))
    assert play.observe(subject) == expected, "2 threads"


@pytest.mark.parametrize("block_size", [1, 3, 16, 200])
def test_any_block_size_gives_the_same_answer_in_any_chunks(block_size: int) -> None:
    checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB))
    executor = TorchExecutor(
        checkpoint,
        num_blocks=NUM_BLOCKS,
        num_swap_blocks=NUM_SWAP_BLOCKS,
        block_size=block_size,
    )
    subject = observed(1)

    def play(chunk: int, **options: Any) -> list[Any]:
        how = Play(executor=executor, chunk=chunk, block_size=block_size, **options)
        return how.observe(subject)

    expected = play(PROMPT)
    assert play(11) == expected
    assert play(50, padded=True, swap_at=(1, 6)) == expected
