"""Log-probabilities of a text by Headway's kernels, at the precisions that an engine has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.protocol import Prompts
from benchmarks.peers.scores import save
from headway.executors.cpu import usable_cores
from headway.kernels.native_ops import NativeOps
from headway.kernels.ops import Rows
from headway.models.checkpoint import Checkpoint
from headway.models.llama import Llama
from headway.models.registry import build_model

_BLOCK_SIZE = 16


def write_scores(
    checkpoint: Checkpoint, windows: Prompts, path: str, *, quantization: Any, kv_dtype: Any
) -> None:
    """Write what the engine would compute: bits do not depend on how a text is cut into steps."""
    num_blocks = max(-(-len(window) // _BLOCK_SIZE) for window in windows)
    ops = NativeOps(
        checkpoint.config,
        num_blocks=num_blocks,
        block_size=_BLOCK_SIZE,
        num_swap_blocks=0,
        num_threads=usable_cores(),
        quantization=quantization,
        kv_dtype=kv_dtype,
        isa="auto",
    )
    model: Llama[Any, Any, Any] = build_model(checkpoint, ops)

    def logits(window: Sequence[int]) -> Any:
        hidden = model.forward(ops.prepare([Rows(list(window), 0, range(num_blocks))]))
        return np.array(ops.logits(hidden, range(len(window)), model.head))

    save(path, map(logits, windows))
