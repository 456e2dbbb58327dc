"""A model as it lies on disk: hyperparameters, stored tensors, and what the text layer needs.

Tensor names are the Hugging Face ones for every file format (``model.embed_tokens.weight``,
``model.layers.0.self_attn.q_proj.weight``, …), with the rotary layout of Hugging Face (halves, not
pairs), so model code never asks where a tensor came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headway.models.config import ModelConfig


class StoredTensor(Protocol):
    """One tensor as stored; bytes are mapped, not read, where the format allows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape in elements, slowest axis first (rows × columns for a projection)."""
        ...

    @property
    def format(self) -> str:
        """Storage format: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K."""
        ...

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The stored bytes, one row of the array per row of the tensor."""
        ...

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Dequantise into a new array of ``shape``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerAssets:
    """Raw material for the text layer, from a directory or from GGUF metadata.

    Exactly one of ``tokenizer_json`` and ``gguf_metadata`` is set.

    Attributes:
        tokenizer_json: content of ``tokenizer.json``.
        tokenizer_config: content of ``tokenizer_config.json`` (special tokens, add_bos_token, …).
        gguf_metadata: the GGUF key-value metadata (``tokenizer.ggml.*``), as plain Python values.
        chat_template: Jinja source, if the model has one.
    """

    tokenizer_json: bytes | None = None
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    gguf_metadata: Mapping[str, Any] | None = None
    chat_template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An opened model. ``generation_config`` holds the file's own defaults (eos ids, top_p, …).

    ``eos_token_ids`` are the ids that end a sequence, merged from all places that name them.
    """

    path: Path
    config: ModelConfig
    tensors: Mapping[str, StoredTensor]
    tokenizer: TokenizerAssets
    generation_config: Mapping[str, Any]
    eos_token_ids: tuple[int, ...]
