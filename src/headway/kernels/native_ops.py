"""The operations in C++, for the CPU: the embedded default.

The sources are in ``native/``. Weights stay as they are stored, repacked for the products, unless
another precision is asked for. With 4- or 8-bit weights the activations of a product are rounded
to 8 bits, in groups of 32 with a scale each (as in llama.cpp); sums are integers in a group and
float32 across groups. Weights converted to int8, and the activations for them, are turned by a
Hadamard transform before, and have groups of 256. With bfloat16 weights activations are bfloat16.
Everything else is float32.

Batch invariance (see :mod:`headway.kernels.ops`) holds bit by bit, by construction: no product is
split over its inner dimension, every row takes the same steps in one order whatever its
neighbours, and attention goes by units of 128 absolute positions, each from nothing, folded in
order. Results differ between instruction sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headway.core.plan import BlockMove, Padding
from headway.errors import ModelError
from headway.kernels import _native
from headway.kernels.ops import Rows
from headway.models.checkpoint import StoredTensor
from headway.models.config import ModelConfig
from headway.models.rotary import inverse_frequencies

_Forward: TypeAlias = Callable[[_native.Step], _native.Tensor]

QUANTIZATIONS: Final[dict[str, str]] = {
    "auto": "",
    "float32": "F32",
    "bfloat16": "BF16",
    "int8": "INT8",
}
"""The storage format that weights are converted to; none for ``auto``."""

_HEAD_DIM_STEP: Final = 16
_MAX_HEAD_DIM: Final = 512


class NativeOps:
    """Implements :class:`headway.kernels.ops.Ops`.

    Args:
        config: of the model.
        num_blocks: blocks of the KV pool.
        block_size: positions a block; whole multiples of 16 are fast.
        num_swap_blocks: blocks of the swap space.
        quantization: the precision of the weights; ``auto`` is the file's own.
        kv_dtype: of the KV pool.
        num_threads: how many compute, the caller's among them.
        isa: an instruction set of :func:`isas`, or ``auto``.

    Raises:
        ModelError: the model has a shape that these kernels do not compute.
        ValueError: this processor does not have the instruction set.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int,
        quantization: str,
        kv_dtype: str,
        num_threads: int,
        isa: str,
    ) -> None:
        _check_shape(config)
        num_positions = min(config.max_position_embeddings, num_blocks * block_size)
        frequencies = inverse_frequencies(config)
        angles = np.arange(num_positions, dtype=np.float32)[:, None] * frequencies
        self._target = QUANTIZATIONS[quantization]
        self._block_size = block_size
        self._core = _native.Ops(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            window=config.sliding_window or 0,
            kv_type=kv_dtype,
            num_blocks=num_blocks,
            block_size=block_size,
            num_swap_blocks=num_swap_blocks,
            cosines=np.cos(angles),
            sines=np.sin(angles),
            num_threads=num_threads,
            isa=isa,
        )
        self._kinds: set[str] = set()
        self._call(self._core)

    def _call(self, target: Any) -> None:
        """Have the model call this one's operations, with nothing between."""
        self.embed = target.embed
        self.rms_norm = target.rms_norm
        self.final_norm = target.final_norm
        self.linear = target.linear
        self.norm_heads = target.norm_heads
        self.rotate_and_store = target.rotate_and_store
        self.attention = target.attention
        self.silu_mul = target.silu_mul

    @property
    def core(self) -> _native.Ops:
        """The kernels, which also draw tokens, and are measured."""
        return self._core

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self._core.isa

    def make_resident(self) -> None:
        """Take the whole KV pool from the system, of which steps take a little in advance."""
        self._core.make_resident()

    def load_table(self, stored: StoredTensor) -> _native.Table:
        """Take an embedding table as it is stored; it is read from where it lies."""
        return _native.Table(stored.format, stored.shape[1], stored.data)

    def load_vector(self, stored: StoredTensor) -> _native.Vector:
        """Take the weights of a norm, in float32."""
        return _native.Vector(stored.to_float32())

    def load_matrix(
        self, parts: Sequence[StoredTensor], biases: Sequence[StoredTensor]
    ) -> _native.Matrix:
        """Pack the parts, each in its own format."""
        matrix = self._pack(parts, biases)
        self._kinds.add(matrix.activations)
        # Products of one kind take packed activations straight from the operation before.
        self._core.activations = self._kinds.copy().pop() if len(self._kinds) == 1 else "rows"
        return matrix

    def load_head(self, stored: StoredTensor) -> _native.Matrix:
        """Pack the output head."""
        return self._pack([stored], [])

    def swap_out(self, moves: Sequence[BlockMove]) -> None:
        """Copy to the swap space."""
        self._core.swap_out(moves)

    def copy_blocks(self, moves: Sequence[BlockMove]) -> None:
        """Copy inside the pool."""
        self._core.copy_blocks(moves)

    def swap_in(self, moves: Sequence[BlockMove]) -> None:
        """Copy from the swap space."""
        self._core.swap_in(moves)

    def prepare(self, rows: Sequence[Rows], padding: Padding | None = None) -> _native.Step:
        """Lay out a step. Rows of padding are written nowhere, and attend to a block of zeros."""
        if padding is None:
            return self._core.prepare(rows, self._block_size, [], 0)
        missing = [padding.num_rows - len(part.token_ids) for part in rows]
        missing += [padding.num_rows] * (padding.num_sequences - len(rows))
        counts = [count for count in missing if count]
        return self._core.prepare(rows, self._block_size, counts, padding.length)

    def compiled(self, forward: _Forward) -> _Forward:
        """Record the operations of a forward pass, which then run in one call for each step."""
        program = _native.Program(self._core)
        self._call(program)
        try:
            # a recorded operation gives a number for its tensor, and has no use for a step
            program.finish(cast("int", forward(cast("_native.Step", None))))
        finally:
            self._call(self._core)
        return program.run

    def are_finite(self, hidden: _native.Tensor) -> list[bool]:
        """Look at every feature."""
        return self._core.are_finite(hidden)

    def logits(
        self, hidden: _native.Tensor, rows: Sequence[int], head: _native.Matrix
    ) -> npt.NDArray[np.float32]:
        """Multiply the chosen rows by the head."""
        return self._core.logits(hidden, rows, head)

    def _pack(
        self, parts: Sequence[StoredTensor], biases: Sequence[StoredTensor]
    ) -> _native.Matrix:
        matrix = _native.Matrix(parts[0].shape[1])
        for index, part in enumerate(parts):
            bias = biases[index].to_float32() if biases else None
            matrix.add(self._core, part.format, self._target, part.data, bias)
        return matrix


def isas() -> list[str]:
    """Return the instruction sets that this processor and build have, the best first."""
    return _native.isas()


def _check_shape(config: ModelConfig) -> None:
    if config.head_dim % _HEAD_DIM_STEP or config.head_dim > _MAX_HEAD_DIM:
        raise ModelError(
            f"the cpu executor computes heads of {_HEAD_DIM_STEP} to {_MAX_HEAD_DIM} elements in "
            f"steps of {_HEAD_DIM_STEP}, not of {config.head_dim}"
        )
