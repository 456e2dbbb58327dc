"""The embedded default model in C++: close to float32, in each precision.

The text is the repository's own licence: public, and long enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headway.kernels.ops import Rows
from headway.models.checkpoint import Checkpoint
from headway.models.loading import open_checkpoint
from headway.models.registry import build_model
from headway.text.loading import load_tokenizer

native_ops = pytest.importorskip(
    "headway.kernels.native_ops", reason="the native kernels are not built", exc_type=ImportError
)

pytestmark = pytest.mark.slow

LICENCE = Path(__file__).parents[2] / "LICENSE"
NUM_TOKENS, ROWS_AT_ONCE = 2000, 250
BLOCKS = NUM_TOKENS // 16


@pytest.fixture(scope="module")
def checkpoint(smollm2_gguf: Path) -> Checkpoint:
    return open_checkpoint(smollm2_gguf)


@pytest.fixture(scope="module")
def token_ids(checkpoint: Checkpoint) -> list[int]:
    assets = checkpoint.tokenizer
    tokenizer = load_tokenizer(
        assets.tokenizer_json,
        assets.tokenizer_config,
        assets.gguf_metadata,
        model_vocab_size=checkpoint.config.vocab_size,
    )
    text = LICENCE.read_text(encoding="utf-8")
    return list(tokenizer.encode(text, add_special_tokens=False))[:NUM_TOKENS]


def logits(checkpoint: Checkpoint, ops: Any, token_ids: list[int]) -> npt.NDArray[np.float32]:
    model = build_model(checkpoint, ops)
    hidden = model.forward(ops.prepare([Rows(token_ids, 0, range(BLOCKS))]))
    found: npt.NDArray[np.float32] = ops.logits(hidden, range(len(token_ids)), model.head)
    return found


def native(checkpoint: Checkpoint, token_ids: list[int], isa: str, **options: Any) -> Any:
    ops = native_ops.NativeOps(
        checkpoint.config,
        num_blocks=BLOCKS,
        block_size=16,
        num_swap_blocks=0,
        num_threads=2,
        isa=isa,
        **options,
    )
    return logits(checkpoint, ops, token_ids)


@pytest.fixture(scope="module")
def exact(smollm2_gguf: Path, token_ids: list[int]) -> npt.NDArray[np.float32]:
    """By ``transformers``, in float32."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers_oracle import oracle_logits, smollm2_by_transformers

    return oracle_logits(smollm2_by_transformers(smollm2_gguf), token_ids)


def log_softmax(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = values.astype(np.float64) - values.max(axis=1, keepdims=True)
    found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def mean_divergence(expected: npt.NDArray[np.float32], seen: npt.NDArray[np.float32]) -> float:
    """Return the mean Kullback-Leibler divergence of the second from the first, in nats."""
    total = 0.0
    for i in range(0, len(expected), ROWS_AT_ONCE):
        p, q = log_softmax(expected[i : i + ROWS_AT_ONCE]), log_softmax(seen[i : i + ROWS_AT_ONCE])
        total += float((np.exp(p) * (p - q)).sum())
    return total / len(expected)


@pytest.mark.parametrize("isa", ["auto", "avx2"])
def test_float32_is_exact(
    checkpoint: Checkpoint, token_ids: list[int], exact: npt.NDArray[np.float32], isa: str
) -> None:
    if isa not in (*native_ops.isas(), "auto"):
        pytest.skip(f"this processor has no {isa}")
    found = native(checkpoint, token_ids, isa, quantization="float32", kv_dtype="float32")
    assert np.abs(found - exact).max() <= 1e-4 * np.abs(exact).max()


BOUNDS = {
    ("auto", "bfloat16"): (0.005, 0.95),
    ("auto", "float32"): (0.005, 0.95),
    ("auto", "int8"): (0.006, 0.94),
    ("float32", "int8"): (0.0015, 0.97),
    ("float32", "bfloat16"): (0.0005, 0.99),
    ("bfloat16", "bfloat16"): (0.001, 0.975),
    ("int8", "bfloat16"): (0.006, 0.95),
}
"""By weights and KV pool: the highest mean divergence, the least agreement of the first choice."""


@pytest.mark.parametrize(
    ("isa", "quantization", "kv_dtype"),
    [
        *(("auto", *precision) for precision in BOUNDS),
        ("avx2", "auto", "bfloat16"),
        ("avx2", "int8", "bfloat16"),
    ],
)
def test_other_precisions_are_close(
    checkpoint: Checkpoint,
    token_ids: list[int],
    exact: npt.NDArray[np.float32],
    isa: str,
    quantization: str,
    kv_dtype: str,
) -> None:
    """Run with ``-s`` for the table in docs/design/executors.md."""
    if isa not in (*native_ops.isas(), "auto"):
        pytest.skip(f"this processor has no {isa}")
    highest, least = BOUNDS[quantization, kv_dtype]
    found = native(checkpoint, token_ids, isa, quantization=quantization, kv_dtype=kv_dtype)
    divergence = mean_divergence(exact, found)
    agreement = (found.argmax(axis=1) == exact.argmax(axis=1)).mean()
    print(f"\n{isa}: {quantization}, {kv_dtype}: mean KL {divergence:.5f}, top-1 {agreement:.1%}")
    assert divergence <= highest
    assert agreement >= least
