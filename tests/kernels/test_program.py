"""A forward pass that is recorded once and runs in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.kernels.ops import Rows
from headway.models.registry import build_model
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

native_ops = pytest.importorskip("headway.kernels.native_ops", reason="the kernels are not built")
_native = pytest.importorskip("headway.kernels._native", reason="the kernels are not built")

STEPS = (
    [Rows([5, 6, 7, 8, 9], 0, [3])],
    [Rows([1], 5, [3]), Rows(list(range(20)), 0, [1, 2])],
    [Rows([2], 6, [3]), Rows([3], 20, [1, 2])],
)


def make_ops(config: Any) -> Any:
    return native_ops.NativeOps(
        config,
        num_blocks=4,
        block_size=16,
        num_swap_blocks=0,
        quantization="auto",
        kv_dtype="float32",
        num_threads=2,
        isa="auto",
    )


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_it_gives_the_bits_of_its_operations_one_by_one(architecture: str) -> None:
    config = tiny_config(
        architecture=architecture,
        qk_norm=architecture == "qwen3",
        attention_bias=architecture == "qwen2",
    )
    checkpoint = tiny_checkpoint(config)
    found = []
    for compile_it in (False, True):
        ops = make_ops(config)
        model = build_model(checkpoint, ops)
        forward = ops.compiled(model.forward) if compile_it else model.forward
        hidden = [forward(ops.prepare(rows)).numpy().copy() for rows in STEPS]
        found.append(hidden)
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
        assert np.isfinite(one).all()


def test_the_operations_are_as_before_when_a_recording_fails() -> None:
    config = tiny_config(vocab_size=97)
    ops = make_ops(config)
    model = build_model(tiny_checkpoint(config), ops)

    def fails(step: Any) -> Any:
        model.forward(step)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        ops.compiled(fails)
    assert model.forward(ops.prepare(STEPS[0])).shape[0] == 5


def test_misuse_is_refused() -> None:
    config = tiny_config(vocab_size=97)
    ops = make_ops(config)
    program = _native.Program(ops.core)
    with pytest.raises(ValueError, match="no such register"):
        program.silu_mul(0)
    with pytest.raises(ValueError, match="not ended"):
        program.run(ops.prepare(STEPS[0]))
    table = ops.load_table(tiny_checkpoint(config).tensors["model.embed_tokens.weight"])
    program.finish(program.embed(table, None))
    with pytest.raises(ValueError, match="has ended"):
        program.silu_mul(0)
    del table
    assert program.run(ops.prepare(STEPS[0])).shape == (5, config.hidden_size)
