"""Paged attention on torch CPU with a softmax that runs over key tiles in one fixed order.

The running maximum and sum (Milakov and Gimelshein, 2018; Dao et al., 2022) start at the first
position of the sequence and go by absolute key tiles. Keys that a query does not see, and whole
tiles of them, add exact zeros, so they change nothing. All products have the shape
``(any, multiple of 8, head_dim) x (any, head_dim, key_tile)``, for which every row was measured to
be independent of the number of rows, of the batch and of the threads (MKL; see
:mod:`headway.kernels.torch_linear`). Scores, softmax and sums are float32 for every dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from headway.kernels.torch_layout import KeyTile, PoolShape, QueryGroup
from headway.kernels.torch_linear import padded

LOWEST: Final = -1e30
"""Where a running maximum starts. Finite, since infinity minus infinity is not a number."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Where a step writes keys and values, and what it clears first.

    What an earlier owner left in a block, or a copy brought along, could be infinite.

    Attributes:
        slots: for each row and KV head, a row of the pool seen as ``(…, head_dim)``.
        begun: blocks that are written in part and hold nothing else of the sequence.
        stale: slots behind the last position in blocks that were copied from elsewhere.
    """

    slots: Tensor
    begun: Tensor
    stale: Tensor


class TorchPool:
    """Keys and values of one layer, in blocks, and its part of the swap space."""

    def __init__(self, shape: PoolShape, num_swap_blocks: int, dtype: torch.dtype) -> None:
        self._shape = shape
        # Not cleared, so that memory is taken only by blocks in use: see ``store``.
        size = (shape.num_kv_heads, shape.num_stored, shape.block_size, shape.head_dim)
        self._keys = torch.empty(size, dtype=dtype)
        self._values = torch.empty(size, dtype=dtype)
        for cache in (self._keys, self._values):
            cache[:, shape.num_blocks :] = 0
        swap_size = (shape.num_kv_heads, num_swap_blocks, shape.block_size, shape.head_dim)
        self._swapped_keys = torch.empty(swap_size, dtype=dtype)
        self._swapped_values = torch.empty(swap_size, dtype=dtype)

    def swap_out(self, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks of the pool to blocks of the swap space."""
        _copy_blocks(self._keys, sources, self._swapped_keys, targets)
        _copy_blocks(self._values, sources, self._swapped_values, targets)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks inside the pool: all sources are read before any target is written."""
        _copy_blocks(self._keys, sources, self._keys, targets)
        _copy_blocks(self._values, sources, self._values, targets)

    def swap_in(self, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks of the swap space to blocks of the pool."""
        _copy_blocks(self._swapped_keys, sources, self._keys, targets)
        _copy_blocks(self._swapped_values, sources, self._values, targets)

    def store(self, keys: Tensor, values: Tensor, to: Targets) -> None:
        """Write keys and values, both ``(rows, num_kv_heads, head_dim)``."""
        width = self._shape.head_dim
        for cache, new in ((self._keys, keys), (self._values, values)):
            slots = cache.view(-1, width)
            if to.begun.numel():
                cache.index_fill_(1, to.begun, 0)
            if to.stale.numel():
                slots.index_fill_(0, to.stale, 0)
            slots.index_copy_(0, to.slots, new.reshape(-1, width).to(cache.dtype))

    def attend(self, queries: Tensor, group: QueryGroup) -> Tensor:
        """Return the attention of a group's queries, ``(tiles * tokens, heads * head_dim)``.

        ``queries`` are ``(rows, heads, head_dim)``, scaled, float32.
        """
        tiled = _into_tiles(queries, group, self._shape.num_kv_heads)
        highest = torch.full((*tiled.shape[:-1], 1), LOWEST)
        total = torch.zeros_like(highest)
        sums = torch.zeros_like(tiled)
        for tile in group.key_tiles:
            part = slice(tile.first, tile.last)
            self._add_tile(tiled[part], tile, highest[part], total[part], sums[part])
        num_heads = queries.shape[1]
        return _out_of_tiles(sums.div_(total), group, num_heads)

    def _add_tile(
        self, queries: Tensor, tile: KeyTile, highest: Tensor, total: Tensor, sums: Tensor
    ) -> None:
        """Take one key tile into the running softmax: updates the last three in place."""
        keys, values = self._gather(self._keys, tile), self._gather(self._values, tile)
        scores = torch.bmm(queries.flatten(0, 1), keys.transpose(1, 2)).view(
            *queries.shape[:-1], -1
        )
        _mask(scores, tile)
        now_highest = torch.maximum(highest, scores.amax(-1, keepdim=True))
        weights = scores.sub_(now_highest).exp_()
        shrink = highest.sub_(now_highest).exp_()
        total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
        sums.mul_(shrink).add_(torch.bmm(weights.flatten(0, 1), values).view(sums.shape))
        highest.copy_(now_highest)

    def _gather(self, cache: Tensor, tile: KeyTile) -> Tensor:
        """Return the keys or values of a tile, ``(query tiles * KV heads, key_tile, head_dim)``."""
        shape = self._shape
        rows = cache.view(-1, shape.block_size * shape.head_dim).index_select(0, tile.blocks)
        return rows.view(-1, shape.key_tile, shape.head_dim).float()


def _copy_blocks(source: Tensor, sources: Tensor, target: Tensor, targets: Tensor) -> None:
    """Copy blocks, which are the second axis; ``targets`` are distinct."""
    target.index_copy_(1, targets, source.index_select(1, sources))


def _mask(scores: Tensor, tile: KeyTile) -> None:
    """Add the mask to scores of shape ``(query tiles, KV heads, tokens * group, key_tile)``."""
    if tile.mask is None:
        return
    num_tokens = tile.mask.shape[2]
    masked = scores[tile.first_masked - tile.first :]
    masked.view(*masked.shape[:2], num_tokens, -1, masked.shape[-1]).add_(tile.mask)


def _into_tiles(queries: Tensor, group: QueryGroup, num_kv_heads: int) -> Tensor:
    """Return queries as ``(tiles, KV heads, tokens * query heads of a KV head, head_dim)``.

    Query heads are padded until the third size is a whole number of row tiles.
    """
    _, num_heads, width = queries.shape
    per_kv_head = num_heads // num_kv_heads
    sizes = (group.num_tiles, group.num_tokens, num_kv_heads, per_kv_head, width)
    tiled = queries.index_select(0, group.sources).view(sizes).permute(0, 2, 1, 3, 4)
    if group.num_tokens == 1:
        tiled = pad(tiled, (0, 0, 0, padded(per_kv_head) - per_kv_head))
    return tiled.reshape(group.num_tiles, num_kv_heads, -1, width)


def _out_of_tiles(tiled: Tensor, group: QueryGroup, num_heads: int) -> Tensor:
    """Undo :func:`_into_tiles`: ``(tiles * tokens, heads * head_dim)``."""
    num_tiles, num_kv_heads, _, width = tiled.shape
    heads = tiled.view(num_tiles, num_kv_heads, group.num_tokens, -1, width)
    heads = heads[:, :, :, : num_heads // num_kv_heads].permute(0, 2, 1, 3, 4)
    return heads.reshape(num_tiles * group.num_tokens, num_heads * width)
