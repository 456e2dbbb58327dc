"""The operations in NumPy: where the native kernels could not be built. Slow, and right.

Weights are float32, whatever the file has. Batch invariance (see :mod:`headway.kernels.ops`) holds
because every row is computed alone, by calls whose shapes depend on its position only. Padding is
computed too, but for keys that nobody sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.core.plan import BlockMove, Padding
from headway.kernels.numpy_kv import KV_FORMATS
from headway.kernels.ops import Rows
from headway.models.checkpoint import StoredTensor
from headway.models.config import ModelConfig
from headway.models.rotary import inverse_frequencies

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NumpyMatrix:
    """A projection, ``(out, in)``."""

    weight: Floats
    bias: Floats | None


@dataclass(frozen=True, slots=True)
class NumpyRow:
    """One row of a step; a row of padding has no table and writes nowhere."""

    token_id: int
    position: int
    block_ids: npt.NDArray[np.int64] | None


class NumpyOps:
    """Implements :class:`headway.kernels.ops.Ops`.

    ``kv_dtype`` is one of :data:`headway.kernels.numpy_kv.KV_FORMATS`.
    """

    isa = "numpy"

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int,
        kv_dtype: str,
    ) -> None:
        self._config = config
        self._block_size = block_size
        self._kv = KV_FORMATS[kv_dtype]
        width = (2, config.num_kv_heads, block_size)
        head = self._kv.dtype(config.head_dim)
        self._pool = np.empty((config.num_layers, num_blocks, *width), dtype=head)
        self._swap = np.empty((config.num_layers, num_swap_blocks, *width), dtype=head)
        self._frequencies = inverse_frequencies(config)

    def make_resident(self) -> None:
        """Write to the whole KV pool, which must be as good as empty: then the system gives it."""
        self._pool.fill(0)

    def load_table(self, stored: StoredTensor) -> Floats:
        """Take an embedding table."""
        return stored.to_float32()

    def load_vector(self, stored: StoredTensor) -> Floats:
        """Take the weights of a norm."""
        return stored.to_float32()

    def load_matrix(
        self, parts: Sequence[StoredTensor], biases: Sequence[StoredTensor]
    ) -> NumpyMatrix:
        """Stack the parts."""
        weight = np.concatenate([part.to_float32() for part in parts])
        bias = np.concatenate([part.to_float32() for part in biases]) if biases else None
        return NumpyMatrix(weight, bias)

    def load_head(self, stored: StoredTensor) -> NumpyMatrix:
        """Take the output head."""
        return NumpyMatrix(stored.to_float32(), None)

    def swap_out(self, moves: Sequence[BlockMove]) -> None:
        """Copy to the swap space."""
        for move in moves:
            self._swap[:, move.target] = self._pool[:, move.source]

    def copy_blocks(self, moves: Sequence[BlockMove]) -> None:
        """Copy inside the pool, one after the other."""
        for move in moves:
            self._pool[:, move.target] = self._pool[:, move.source]

    def swap_in(self, moves: Sequence[BlockMove]) -> None:
        """Copy from the swap space."""
        for move in moves:
            self._pool[:, move.target] = self._swap[:, move.source]

    def prepare(self, rows: Sequence[Rows], padding: Padding | None = None) -> list[NumpyRow]:
        """Lay out a step."""
        step = [
            NumpyRow(token_id, part.start + i, np.array(part.block_ids, dtype=np.int64))
            for part in rows
            for i, token_id in enumerate(part.token_ids)
        ]
        if padding is not None:
            missing = padding.num_sequences * padding.num_rows - len(step)
            step.extend([NumpyRow(0, 0, None)] * missing)
        return step

    def embed(self, table: Floats, step: list[NumpyRow]) -> Floats:
        """Return the residual stream."""
        return table[[row.token_id for row in step]]

    def rms_norm(
        self, residual: Floats, delta: Floats | None, weight: Floats, eps: float
    ) -> Floats:
        """Add and normalise."""
        if delta is not None:
            residual += delta
        return _by_row(residual, lambda x: _rms_norm(x, weight, eps))

    final_norm = rms_norm

    def linear(self, x: Floats, matrix: NumpyMatrix) -> Floats:
        """Multiply, row by row."""
        product = _by_row(x, lambda row: matrix.weight @ row)
        return product if matrix.bias is None else product + matrix.bias

    def norm_heads(self, qkv: Floats, q_weight: Floats, k_weight: Floats, eps: float) -> Floats:
        """Normalise each head of q and k."""
        num_q, num_k = self._config.num_heads, self._config.num_kv_heads
        heads = qkv.reshape(len(qkv), -1, self._config.head_dim)
        for row in heads:
            for h in range(num_q + num_k):
                row[h] = _rms_norm(row[h], q_weight if h < num_q else k_weight, eps)
        return heads.reshape(qkv.shape)

    def rotate_and_store(self, qkv: Floats, layer: int, step: list[NumpyRow]) -> Floats:
        """Rotate halves, store, and return q, scaled."""
        num_q, num_k = self._config.num_heads, self._config.num_kv_heads
        heads = qkv.reshape(len(qkv), -1, self._config.head_dim)
        for row, values in zip(step, heads, strict=True):
            angles = np.float32(row.position) * self._frequencies
            turned = _rotate(values[: num_q + num_k], np.cos(angles), np.sin(angles))
            values[: num_q + num_k] = self._kv.turn(turned)
            if row.block_ids is not None:
                index, slot = divmod(row.position, self._block_size)
                block = self._pool[layer, row.block_ids[index]]
                block[0, :, slot] = self._kv.narrow(values[num_q : num_q + num_k])
                block[1, :, slot] = self._kv.narrow(values[num_q + num_k :])
        scale = np.float32(self._config.head_dim**-0.5)
        return np.ascontiguousarray(heads[:, :num_q]).reshape(len(qkv), -1) * scale

    def attention(self, queries: Floats, layer: int, step: list[NumpyRow]) -> Floats:
        """Attend, row by row."""
        out = np.zeros_like(queries)
        for i, row in enumerate(step):
            if row.block_ids is not None:
                out[i] = self._attend(queries[i], layer, row.position, row.block_ids)
        return out

    def silu_mul(self, gate_up: Floats) -> Floats:
        """Gate."""
        half = gate_up.shape[1] // 2
        with np.errstate(over="ignore", invalid="ignore"):
            return _by_row(gate_up, lambda x: x[:half] / (np.exp(-x[:half]) + 1) * x[half:])

    def compiled(
        self, forward: Callable[[list[NumpyRow]], Floats]
    ) -> Callable[[list[NumpyRow]], Floats]:
        """Return it as it is."""
        return forward

    def are_finite(self, hidden: Floats) -> list[bool]:
        """Look at every feature."""
        return [bool(np.isfinite(row).all()) for row in hidden]

    def logits(self, hidden: Floats, rows: Sequence[int], head: NumpyMatrix) -> Floats:
        """Multiply the chosen rows by the head."""
        return self.linear(hidden[list(rows)], head)

    def _attend(
        self, queries: Floats, layer: int, position: int, block_ids: npt.NDArray[np.int64]
    ) -> Floats:
        window, width = self._config.sliding_window, self._config.head_dim
        first = 0 if window is None else max(0, position - window + 1)
        at = np.arange(first, position + 1)
        found = self._pool[layer, block_ids[at // self._block_size], :, :, at % self._block_size]
        keys, values = self._kv.widen(np.ascontiguousarray(np.moveaxis(found, 0, 2)))
        grouped = queries.reshape(self._config.num_kv_heads, -1, width)
        out = np.empty_like(grouped)
        with np.errstate(invalid="ignore", over="ignore"):
            for h, group in enumerate(grouped):
                for g, query in enumerate(group):
                    scores = keys[h] @ query
                    weights = np.exp(scores - scores.max())
                    out[h, g] = (weights @ values[h]) / weights.sum()
        return out.reshape(-1)


def _by_row(x: Floats, function: Callable[[Floats], Floats]) -> Floats:
    return np.stack([function(row) for row in x])


def _rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        mean_square = np.float32((x * x).mean())
        normed: Floats = x * np.float32(1 / np.sqrt(mean_square + np.float32(eps))) * weight
        return normed


def _rotate(heads: Floats, cosines: Floats, sines: Floats) -> Floats:
    left, right = np.split(heads, 2, axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        turned = (left * cosines - right * sines, right * cosines + left * sines)
    return np.concatenate(turned, axis=1)
