"""The operations on torch, on the CPU: the readable reference that defines the truth.

In ``bfloat16`` the weights, the KV pool and the inputs of the products are bfloat16. The residual
stream, norms, rotation, softmax and the output head stay in float32: bfloat16 logits would be as
coarse as 0.125 and full of ties.

Batch invariance (see :mod:`headway.kernels.ops`) holds bit by bit. It rests on four things:

- products of fixed kinds of shape (:mod:`headway.kernels.torch_linear`);
- attention by absolute key tiles (:mod:`headway.kernels.torch_attention`);
- sums over the last, contiguous axis of rows of one width, which torch does row by row;
- no function whose vectorised and scalar forms differ: torch's ``silu`` gives the elements at the
  end of a thread's share other bits than the rest, its ``exp`` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headway.core.plan import BlockMove, Padding
from headway.kernels.block_moves import independent_runs
from headway.kernels.ops import Rows
from headway.kernels.torch_attention import Targets, TorchPool
from headway.kernels.torch_layout import PoolShape, QueryGroup, padding_rows, query_groups
from headway.kernels.torch_linear import TorchMatrix, multiply, pack, padded
from headway.models.checkpoint import StoredTensor
from headway.models.config import ModelConfig
from headway.models.rotary import inverse_frequencies

Dtype = Literal["float32", "bfloat16"]

DTYPES: Final[dict[str, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class TorchStep:
    """What all layers share. Rows are padded to a multiple of the row tile.

    Attributes:
        token_ids: ``(padded rows,)``; padding is token 0.
        cosines: of the rotation, ``(padded rows, 1, head_dim / 2)``.
        sines: the same.
        targets: of the keys and values of the first ``num_rows`` rows.
        groups: the attention, in pieces.
    """

    num_rows: int
    token_ids: Tensor
    cosines: Tensor
    sines: Tensor
    targets: Targets
    groups: tuple[QueryGroup, ...]


class TorchOps:
    """Implements :class:`headway.kernels.ops.Ops`.

    The KV pool has ``num_blocks`` blocks and the swap space ``num_swap_blocks``.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int,
        dtype: Dtype,
        num_swap_blocks: int = 0,
    ) -> None:
        self._config = config
        self._dtype = DTYPES[dtype]
        self._shape = PoolShape(
            num_kv_heads=config.num_kv_heads,
            num_blocks=num_blocks,
            block_size=block_size,
            head_dim=config.head_dim,
        )
        self._pools = [
            TorchPool(self._shape, num_swap_blocks, self._dtype) for _ in range(config.num_layers)
        ]
        #: blocks that may hold something of another sequence behind what their own has computed
        self._moved: set[int] = set()
        num_positions = min(config.max_position_embeddings, num_blocks * block_size)
        frequencies = torch.from_numpy(inverse_frequencies(config))
        angles = torch.arange(num_positions, dtype=torch.float32)[:, None] * frequencies
        self._cosines, self._sines = angles.cos()[:, None], angles.sin()[:, None]

    def load_table(self, stored: StoredTensor) -> Tensor:
        """Take an embedding table."""
        return torch.from_numpy(stored.to_float32()).to(self._dtype)

    def load_vector(self, stored: StoredTensor) -> Tensor:
        """Take the weights of a norm, in float32."""
        return torch.from_numpy(stored.to_float32())

    def load_matrix(
        self, parts: Sequence[StoredTensor], biases: Sequence[StoredTensor]
    ) -> TorchMatrix:
        """Stack the parts, convert and pack them."""
        weight = self._stack(parts)
        return pack(weight, self._stack(biases) if biases else None)

    def load_head(self, stored: StoredTensor) -> TorchMatrix:
        """Take the output head: values of the dtype, kept in float32."""
        weight = torch.from_numpy(stored.to_float32())
        return pack(weight.to(self._dtype).float(), None)

    def swap_out(self, moves: Sequence[BlockMove]) -> None:
        """Copy to the swap space."""
        sources, targets = _block_ids(moves)
        for pool in self._pools:
            pool.swap_out(sources, targets)

    def copy_blocks(self, moves: Sequence[BlockMove]) -> None:
        """Copy inside the pool."""
        for run in independent_runs(moves):
            sources, targets = _block_ids(run)
            for pool in self._pools:
                pool.copy(sources, targets)
        self._moved.update(move.target for move in moves)

    def swap_in(self, moves: Sequence[BlockMove]) -> None:
        """Copy from the swap space."""
        sources, targets = _block_ids(moves)
        for pool in self._pools:
            pool.swap_in(sources, targets)
        self._moved.update(move.target for move in moves)

    def prepare(self, rows: Sequence[Rows], padding: Padding | None = None) -> TorchStep:
        """Lay out a step. Rows of padding write to the scratch block, and attend to that alone."""
        begun, stale = self._begun(rows), self._stale(rows)
        if padding is not None:
            rows = [*rows, *padding_rows(rows, padding, self._shape)]
        token_ids = np.concatenate([np.asarray(r.token_ids, dtype=np.int64) for r in rows])
        positions = np.concatenate([np.arange(r.start, r.end) for r in rows])
        num_rows = len(token_ids)
        num_padded = padded(num_rows)
        extra = (0, num_padded - num_rows)
        at = torch.from_numpy(np.pad(positions, extra))
        return TorchStep(
            num_rows=num_rows,
            token_ids=torch.from_numpy(np.pad(token_ids, extra)),
            cosines=self._cosines.index_select(0, at),
            sines=self._sines.index_select(0, at),
            targets=Targets(self._slots(rows), begun, stale),
            groups=query_groups(
                rows,
                trash_row=num_padded,
                shape=self._shape,
                window=self._config.sliding_window,
                length=None if padding is None else padding.length,
            ),
        )

    def embed(self, table: Tensor, step: TorchStep) -> Tensor:
        """Return the residual stream, float32."""
        return table.index_select(0, step.token_ids).float()

    def rms_norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> Tensor:
        """Add and normalise; the result has the dtype of the products."""
        return self.final_norm(residual, delta, weight, eps).to(self._dtype)

    def final_norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> Tensor:
        """Add and normalise; the result is float32."""
        if delta is not None:
            residual.add_(delta)
        return _rms_norm(residual, weight, eps)

    def linear(self, x: Tensor, matrix: TorchMatrix) -> Tensor:
        """Multiply."""
        return multiply(x, matrix)

    def norm_heads(self, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float) -> Tensor:
        """Normalise each head of q and k; the result is float32."""
        q, k, v = self._split(qkv.float())
        normed = (_rms_norm(q, q_weight, eps), _rms_norm(k, k_weight, eps), v)
        return torch.cat([part.flatten(1) for part in normed], dim=1)

    def rotate_and_store(self, qkv: Tensor, layer: int, step: TorchStep) -> Tensor:
        """Rotate halves, as Hugging Face does, and store; q is scaled, ``(rows, heads, dim)``."""
        q, k, v = self._split(qkv.float())
        q, k = _rotate(q, step), _rotate(k, step)
        real = slice(0, step.num_rows)
        self._pools[layer].store(k[real], v[real], step.targets)
        scaled: Tensor = q * self._config.head_dim**-0.5
        return scaled

    def attention(self, queries: Tensor, layer: int, step: TorchStep) -> Tensor:
        """Attend; the result has the dtype of the products."""
        num_padded, num_heads, width = queries.shape
        out = torch.zeros(num_padded + 1, num_heads * width)
        for group in step.groups:
            out.index_copy_(0, group.targets, self._pools[layer].attend(queries, group))
        return out[:num_padded].to(self._dtype)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Gate, in float32; the result has the dtype of the products."""
        gate, up = gate_up.float().chunk(2, dim=-1)
        denominator = torch.neg(gate).exp_().add_(1)
        return torch.div(gate, denominator).mul_(up).to(self._dtype)

    def compiled(self, forward: Callable[[TorchStep], Tensor]) -> Callable[[TorchStep], Tensor]:
        """Return it as it is."""
        return forward

    def are_finite(self, hidden: Tensor) -> list[bool]:
        """Look at every feature."""
        found: list[bool] = hidden.isfinite().all(-1).tolist()
        return found

    def logits(
        self, hidden: Tensor, rows: Sequence[int], head: TorchMatrix
    ) -> npt.NDArray[np.float32]:
        """Multiply the chosen rows by the head, in float32."""
        chosen = list(rows) + [0] * (padded(len(rows)) - len(rows))
        selected = hidden.index_select(0, torch.tensor(chosen))
        values: npt.NDArray[np.float32] = multiply(selected, head)[: len(rows)].numpy()
        return values

    def _stack(self, parts: Sequence[StoredTensor]) -> Tensor:
        """Return the rows of all parts; each is converted as it is copied to its place."""
        size = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        stacked = torch.empty(size, dtype=self._dtype)
        row = 0
        for part in parts:
            stacked[row : row + part.shape[0]] = torch.from_numpy(part.to_float32())
            row += part.shape[0]
        return stacked

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        num_heads, num_kv_heads = self._config.num_heads, self._config.num_kv_heads
        heads = qkv.view(qkv.shape[0], -1, self._config.head_dim)
        k_end = num_heads + num_kv_heads
        return heads[:, :num_heads], heads[:, num_heads:k_end], heads[:, k_end:]

    def _slots(self, rows: Sequence[Rows]) -> Tensor:
        slots = np.concatenate([_slots(r, self._shape.block_size) for r in rows])
        return self._in_all_heads(slots)

    def _in_all_heads(self, slots: npt.NDArray[np.int64]) -> Tensor:
        heads = np.arange(self._shape.num_kv_heads)
        offsets = heads * (self._shape.num_stored * self._shape.block_size)
        return torch.from_numpy((slots[:, None] + offsets).reshape(-1))

    def _begun(self, rows: Sequence[Rows]) -> Tensor:
        found = [_begun_block(r, self._shape.block_size) for r in rows]
        return torch.tensor([block for block in found if block is not None], dtype=torch.int64)

    def _stale(self, rows: Sequence[Rows]) -> Tensor:
        """Return the slots to clear behind the rows: of those in blocks that came from a move."""
        size = self._shape.block_size
        slots: list[int] = []
        for part in rows if self._moved else ():
            index, num_filled = divmod(part.end, size)
            if num_filled and part.block_ids[index] in self._moved:
                block_id = part.block_ids[index]
                self._moved.remove(block_id)
                slots.extend(range(block_id * size + num_filled, (block_id + 1) * size))
        return self._in_all_heads(np.array(slots, dtype=np.int64))


def _begun_block(rows: Rows, block_size: int) -> int | None:
    """Return the block that the rows begin and don't fill, if there is one."""
    index, num_filled = divmod(rows.end, block_size)
    is_begun_here = num_filled > 0 and rows.start <= index * block_size
    return rows.block_ids[index] if is_begun_here else None


def _block_ids(moves: Sequence[BlockMove]) -> tuple[Tensor, Tensor]:
    """Return the sources and the targets."""
    sources = torch.tensor([move.source for move in moves], dtype=torch.int64)
    return sources, torch.tensor([move.target for move in moves], dtype=torch.int64)


def _slots(rows: Rows, block_size: int) -> npt.NDArray[np.int64]:
    first = rows.start // block_size
    last = (rows.end - 1) // block_size
    blocks = np.asarray(rows.block_ids[first : last + 1], dtype=np.int64)
    positions = np.arange(rows.start, rows.end)
    return blocks[positions // block_size - first] * block_size + positions % block_size


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    mean_square = (x * x).mean(-1, keepdim=True)
    return x * mean_square.add_(eps).rsqrt_() * weight


def _rotate(heads: Tensor, step: TorchStep) -> Tensor:
    left, right = heads.chunk(2, dim=-1)
    cosines, sines = step.cosines, step.sines
    turned = (left * cosines - right * sines, right * cosines + left * sines)
    return torch.cat(turned, dim=-1)
