"""Matrix products on torch CPU whose rows do not depend on each other.

BLAS libraries choose another kernel, and another order of summation, for few rows than for many.
Measured here (torch 2.13, x86 with AVX-512, 1 to 8 threads, float32 and bfloat16): oneDNN on
prepacked weights gives each row the same bits for every number of rows from 2 up; MKL from 10 up,
or in multiples of 4. So all steps are padded to a multiple of :data:`ROW_TILE` rows, and oneDNN is
used where torch has it. Elsewhere each tile is a call of its own, always of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

ROW_TILE: Final = 8
"""Rows of activations come in multiples of this."""


def padded(num_rows: int) -> int:
    """Return the number of rows rounded up to whole tiles."""
    return -(-num_rows // ROW_TILE) * ROW_TILE


@dataclass(frozen=True, slots=True)
class TorchMatrix:
    """A projection in the layout that its product wants: oneDNN's own, or ``(out, in)``."""

    weight: Tensor
    bias: Tensor | None
    is_packed: bool


def pack(weight: Tensor, bias: Tensor | None) -> TorchMatrix:
    """Take a weight of shape ``(out, in)``, and pack it if oneDNN computes in its type."""
    if not _onednn_computes(weight.dtype):
        return TorchMatrix(weight, bias, is_packed=False)
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, ROW_TILE)
    return TorchMatrix(packed, bias, is_packed=True)


def multiply(x: Tensor, matrix: TorchMatrix) -> Tensor:
    """Return ``x @ weight.T + bias``; the number of rows is a multiple of :data:`ROW_TILE`."""
    assert x.shape[0] % ROW_TILE == 0
    if matrix.is_packed:
        product = torch.ops.mkldnn._linear_pointwise(x, matrix.weight, matrix.bias, "none", [], "")
        return cast(Tensor, product)
    tiles = [linear(tile, matrix.weight, matrix.bias) for tile in x.view(-1, ROW_TILE, x.shape[1])]
    return torch.cat(tiles) if len(tiles) > 1 else tiles[0]


def _onednn_computes(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch's own
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        is_supported: Callable[[], bool] = torch.ops.mkldnn._is_mkldnn_bf16_supported
        return is_supported()
    return dtype == torch.float32
