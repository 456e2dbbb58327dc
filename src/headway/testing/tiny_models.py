"""Models of a few thousand random weights, in memory: quick, and real in every other way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.models.architecture import expected_tensors
from headway.models.checkpoint import Checkpoint, StoredTensor, TokenizerAssets
from headway.models.config import ModelConfig
from headway.models.tensors import BLOCKS, dequantise


@dataclass(frozen=True, slots=True, eq=False)
class ArrayTensor:
    """Implements :class:`headway.models.checkpoint.StoredTensor` on an array in memory."""

    values: npt.NDArray[np.float32]
    format: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements."""
        return self.values.shape

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes, row by row."""
        return np.ascontiguousarray(self.values).view(np.uint8)

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Return a copy."""
        return self.values.copy()


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedTensor:
    """Implements :class:`headway.models.checkpoint.StoredTensor` on stored bytes in memory."""

    shape: tuple[int, ...]
    format: str
    data: npt.NDArray[np.uint8]

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Dequantise."""
        return dequantise(self.data, self.format)


def tiny_config(**overrides: Any) -> ModelConfig:
    """Return hyperparameters of a small model; ``overrides`` are fields of ``ModelConfig``."""
    fields: dict[str, Any] = {
        "architecture": "llama",
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    return ModelConfig(**{**fields, **overrides})


def stored(values: npt.NDArray[np.float32], storage: str) -> StoredTensor:
    """Return a matrix in F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0.

    A vector, or a matrix whose rows are no whole number of blocks, stays in F32, as in real files.
    """
    if storage == "F32" or values.ndim == 1 or values.shape[1] % BLOCKS[storage][0]:
        return ArrayTensor(values)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    data = quantize(values, GGMLQuantizationType[storage])
    if data.dtype != np.uint8:
        data = data.view(np.uint8)
    return QuantisedTensor(values.shape, storage, data)


def tiny_checkpoint(
    config: ModelConfig | None = None, *, seed: int = 0, storage: str = "F32"
) -> Checkpoint:
    """Return a checkpoint with random weights, large enough that answers vary.

    Matrices are stored as ``storage`` says, of those that :func:`stored` can make.
    """
    config = config or tiny_config()
    rng = np.random.default_rng(seed)
    tensors = {
        name: stored((rng.standard_normal(shape) * 0.2).astype(np.float32), storage)
        for name, shape in expected_tensors(config)
    }
    return Checkpoint(
        path=Path("tiny"),
        config=config,
        tensors=tensors,
        tokenizer=TokenizerAssets(tokenizer_json=b"{}"),
        generation_config={},
        eos_token_ids=(0,),
    )
