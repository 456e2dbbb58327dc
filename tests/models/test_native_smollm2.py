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
NUM_TOKENS = 512
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
def exact(checkpoint: Checkpoint, token_ids: list[int]) -> npt.NDArray[np.float32]:
    """By torch in float32, which is checked against ``transformers`` elsewhere."""
    torch = pytest.importorskip("torch")
    from headway.kernels.torch_ops import TorchOps

    ops = TorchOps(checkpoint.config, num_blocks=BLOCKS, block_size=16, dtype="float32")
    with torch.inference_mode():
        return logits(checkpoint, ops, token_ids)


def log_softmax(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = values.astype(np.float64) - values.max(axis=1, keepdims=True)
    found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


@pytest.mark.parametrize("isa", ["auto", "avx2"])
def test_float32_is_exact(
    checkpoint: Checkpoint, token_ids: list[int], exact: npt.NDArray[np.float32], isa: str
) -> None:
    if isa not in (*native_ops.isas(), "auto"):
        pytest.skip(f"this processor has no {isa}")
    found = native(checkpoint, token_ids, isa, quantization="float32", kv_dtype="float32")
    assert np.abs(found - exact).max() <= 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("quantization", "kv_dtype", "highest_divergence", "least_agreement"),
    [
        ("auto", "bfloat16", 0.005, 0.94),
        ("auto", "int8", 0.006, 0.93),
        ("float32", "int8", 0.0015, 0.97),
        ("bfloat16", "bfloat16", 0.001, 0.97),
        ("int8", "bfloat16", 0.01, 0.92),
    ],
)
@pytest.mark.parametrize("isa", ["auto", "avx2"])
def test_other_precisions_are_close(
    checkpoint: Checkpoint,
    token_ids: list[int],
    exact: npt.NDArray[np.float32],
    isa: str,
    quantization: str,
    kv_dtype: str,
    highest_divergence: float,
    least_agreement: float,
) -> None:
    if isa not in (*native_ops.isas(), "auto"):
        pytest.skip(f"this processor has no {isa}")
    found = native(checkpoint, token_ids, isa, quantization=quantization, kv_dtype=kv_dtype)
    expected, seen = log_softmax(exact), log_softmax(found)
    divergence = (np.exp(expected) * (expected - seen)).sum(axis=1).mean()
    agreement = (found.argmax(axis=1) == exact.argmax(axis=1)).mean()
    name = f"{quantization}, pool {kv_dtype}, {isa}"
    print(f"{name}: mean KL {divergence:.5f}, top-1 agreement {agreement:.3f}")
    assert divergence <= highest_divergence
    assert agreement >= least_agreement
