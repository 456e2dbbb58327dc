"""The same sequence has the same bits alone, in any batch, in any chunks, padded and swapped.

As for the torch executor, on each instruction set of this machine, and each precision of weights
and KV pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from executor_play import NUM_BLOCKS, NUM_SWAP_BLOCKS, PROMPT, SHAPES, VOCAB, Play, observed

from headway.core.ports import Executor
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

native_ops = pytest.importorskip(
    "headway.kernels.native_ops", reason="the native kernels are not built", exc_type=ImportError
)

from headway.executors.cpu import CpuExecutor  # noqa: E402 - needs the kernels

Make = Callable[[int], Executor]

PRECISIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "q4_1": ("Q4_1", {}),
    "q4_0": ("Q4_0", {"kv_dtype": "float32"}),
    "q4_1, int8 pool": ("Q4_1", {"kv_dtype": "int8"}),
    "q5_1": ("Q5_1", {}),
    "q8_0": ("Q8_0", {}),
    "int8": ("F32", {"quantization": "int8"}),
    "bfloat16": ("BF16", {}),
    "float16": ("F16", {}),
    "float32": ("F32", {"kv_dtype": "float32"}),
}


def executor(shape: str, precision: str, isa: str, num_threads: int, block_size: int) -> Executor:
    storage, options = PRECISIONS[precision]
    checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB, **SHAPES[shape]), storage=storage)
    return CpuExecutor(
        checkpoint,
        num_blocks=NUM_BLOCKS,
        num_swap_blocks=NUM_SWAP_BLOCKS,
        block_size=block_size,
        num_threads=num_threads,
        isa=isa,
        **options,
    )


@pytest.fixture(params=native_ops.isas())
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PRECISIONS)
def make(request: pytest.FixtureRequest, shape: str, isa: str) -> Make:
    """Makes executors with that many threads."""
    return lambda num_threads: executor(shape, request.param, isa, num_threads, 8)


def test_chunks_neighbours_threads_and_preemption_change_no_bit(make: Make) -> None:
    subject = observed(1)
    one, two = make(1), make(2)
    expected = Play(executor=one, chunk=PROMPT).observe(subject)
    for chunk, neighbours in ((PROMPT, 15), (7, 3)):
        play = Play(executor=one, chunk=chunk, neighbours=neighbours)
        assert play.observe(subject) == expected, (chunk, neighbours)
    for chunk, neighbours in ((1, 0), (64, 15)):
        play = Play(executor=two, chunk=chunk, neighbours=neighbours)
        assert play.observe(subject) == expected, ("2 threads", chunk, neighbours)
    play = Play(executor=make(3), chunk=48, neighbours=2, recompute_at=7)
    assert play.observe(subject) == expected


def test_padding_and_swapping_change_no_bit(make: Make) -> None:
    subject = observed(1)
    one = make(1)
    expected = Play(executor=one, chunk=PROMPT).observe(subject)
    for chunk, neighbours in ((PROMPT, 0), (31, 3)):
        play = Play(executor=one, chunk=chunk, neighbours=neighbours, padded=True)
        assert play.observe(subject) == expected, ("padded", chunk, neighbours)
    play = Play(executor=one, chunk=33, neighbours=5, swap_at=(2, 7, 12))
    assert play.observe(subject) == expected, "swapped"
    play = Play(executor=make(2), chunk=60, neighbours=4, padded=True, swap_at=(2, 8))
    assert play.observe(subject) == expected, "2 threads, padded and swapped"


@pytest.mark.parametrize("block_size", [1, 3, 16, 48, 200])
@pytest.mark.parametrize("precision", ["q4_1", "q4_1, int8 pool"])
def test_blocks_of_any_size_give_the_same_answer(isa: str, precision: str, block_size: int) -> None:
    """Also among each other, in any chunks: where keys lie has no influence."""
    subject = observed(1)
    expected = Play(executor=executor("grouped", precision, isa, 1, 8), chunk=PROMPT).observe(
        subject
    )
    other = executor("grouped", precision, isa, 2, block_size)

    def play(chunk: int, **options: Any) -> list[Any]:
        return Play(executor=other, chunk=chunk, block_size=block_size, **options).observe(subject)

    assert play(PROMPT) == expected
    assert play(11) == expected
    assert play(50, padded=True, swap_at=(1, 6)) == expected
