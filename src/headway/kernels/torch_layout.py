"""How the attention of one step is cut into pieces of fixed shape; the same for all layers.

Queries go in tiles of one token (decode) or :data:`CHUNK_TOKENS` tokens (chunks); keys in tiles at
absolute positions ``[j * key_tile, (j + 1) * key_tile)``. A query meets the same keys in the same
tiles whatever its chunk and its neighbours, so the sums over keys have one order.

Query tiles are sorted by position, latest first. Those that see a given key tile are then a
contiguous range, and those that need a mask in it lie at the end of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headway.core.plan import Padding
from headway.kernels.ops import Rows

CHUNK_TOKENS: Final = 32
KEY_TILE: Final = 128

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShape:
    """The KV pool of one layer: ``(num_kv_heads, num_stored, block_size, head_dim)``.

    Two blocks follow those that can be in tables. One is never written: it stands for positions
    without a block. The other takes the keys and values of padding.
    """

    num_kv_heads: int
    num_blocks: int
    block_size: int
    head_dim: int

    @property
    def zero_block(self) -> int:
        """The block that is never written."""
        return self.num_blocks

    @property
    def scratch_block(self) -> int:
        """The block of padding."""
        return self.num_blocks + 1

    @property
    def num_stored(self) -> int:
        """Blocks in memory."""
        return self.num_blocks + 2

    @property
    def blocks_per_tile(self) -> int:
        """Blocks of a key tile."""
        return max(1, KEY_TILE // self.block_size)

    @property
    def key_tile(self) -> int:
        """Positions of a key tile, a whole number of blocks."""
        return self.blocks_per_tile * self.block_size


@dataclass(frozen=True, slots=True)
class KeyTile:
    """One key tile, for the query tiles ``first`` to ``last - 1`` of their group.

    Attributes:
        blocks: rows of the pool seen as ``(num_kv_heads * num_stored, …)``: for each query
            tile, for each KV head, the blocks of the tile.
        first_masked: the query tile from which ``mask`` applies.
        mask: 0 where a query sees a key and minus infinity where not, shape
            ``(last - first_masked, 1, tokens, 1, key_tile)``; None if all is seen.
    """

    first: int
    last: int
    blocks: Tensor
    first_masked: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Query tiles of one size. ``sources`` and ``targets`` are rows of the step, tile by tile.

    Where a tile has fewer tokens than its size, the source is its first row and the target is the
    row after the step's last.
    """

    num_tiles: int
    num_tokens: int
    sources: Tensor
    targets: Tensor
    key_tiles: tuple[KeyTile, ...]


@dataclass(frozen=True, slots=True)
class _QueryTile:
    row: int
    position: int
    num_tokens: int
    rows: Rows


def padding_rows(rows: Sequence[Rows], padding: Padding, shape: PoolShape) -> list[Rows]:
    """Return the rows that a padded step computes beside those of its slices.

    They are sequences of their own, of token 0, whose blocks are all the scratch block: one that
    fills each slice up to ``num_rows``, and one for each member that has no slice.
    """
    missing = [padding.num_rows - len(part.token_ids) for part in rows]
    missing += [padding.num_rows] * (padding.num_sequences - len(rows))
    return [
        Rows([0] * count, 0, [shape.scratch_block] * -(-count // shape.block_size))
        for count in missing
        if count
    ]


@dataclass(frozen=True, slots=True)
class _Cut:
    """What decides which key tiles there are; see :func:`query_groups`."""

    shape: PoolShape
    window: int | None
    length: int | None


def query_groups(
    rows: Sequence[Rows],
    *,
    trash_row: int,
    shape: PoolShape,
    window: int | None,
    length: int | None = None,
) -> tuple[QueryGroup, ...]:
    """Cut the attention of a step into groups of query tiles.

    Args:
        rows: the rows of the step.
        trash_row: where the outputs of padded queries go.
        shape: of the pool.
        window: as in ``ModelConfig``.
        length: if given, every query goes through the key tiles of this many positions, seen or
            not; otherwise it skips those in which it sees nothing.
    """
    singles: list[_QueryTile] = []
    chunks: list[_QueryTile] = []
    row = 0
    for part in rows:
        count = len(part.token_ids)
        if count == 1:
            singles.append(_QueryTile(row, part.start, 1, part))
        else:
            chunks.extend(_chunk_tiles(row, part))
        row += count
    groups = ((singles, 1), (chunks, CHUNK_TOKENS))
    cut = _Cut(shape, window, length)
    return tuple(_group(t, size, trash_row, cut) for t, size in groups if t)


def _chunk_tiles(row: int, rows: Rows) -> list[_QueryTile]:
    count = len(rows.token_ids)
    return [
        _QueryTile(row + i, rows.start + i, min(CHUNK_TOKENS, count - i), rows)
        for i in range(0, count, CHUNK_TOKENS)
    ]


def _group(tiles: list[_QueryTile], size: int, trash_row: int, cut: _Cut) -> QueryGroup:
    tiles.sort(key=lambda tile: -tile.position)
    first_rows = np.array([tile.row for tile in tiles])[:, None]
    firsts = np.array([tile.position for tile in tiles])[:, None]
    lengths = np.array([tile.num_tokens for tile in tiles])[:, None]
    offsets = np.arange(size)
    is_real = offsets < lengths
    positions = firsts + np.where(is_real, offsets, 0)
    sources = first_rows + np.where(is_real, offsets, 0)
    targets = np.where(is_real, sources, trash_row)
    return QueryGroup(
        num_tiles=len(tiles),
        num_tokens=size,
        sources=torch.from_numpy(sources.reshape(-1)),
        targets=torch.from_numpy(targets.reshape(-1)),
        key_tiles=_key_tiles(positions, _tables(tiles, size, cut), cut),
    )


def _tables(tiles: list[_QueryTile], size: int, cut: _Cut) -> _Ints:
    """Return the block tables, ``(tiles, blocks)``, in whole key tiles, without unwritten blocks.

    An unwritten block may hold anything, and zero times infinity is not zero.
    """
    shape = cut.shape
    last = tiles[0].position + size - 1 if cut.length is None else cut.length - 1
    num_key_tiles = last // shape.key_tile + 1
    tables = np.full((len(tiles), num_key_tiles * shape.blocks_per_tile), shape.zero_block)
    for table, tile in zip(tables, tiles, strict=True):
        num_written = min(-(-tile.rows.end // shape.block_size), len(table))
        table[:num_written] = tile.rows.block_ids[:num_written]
    return tables


def _key_tiles(positions: _Ints, tables: _Ints, cut: _Cut) -> tuple[KeyTile, ...]:
    """Make the key tiles of a group; ``positions`` of the queries are ``(tiles, tokens)``."""
    shape, width = cut.shape, cut.shape.blocks_per_tile
    head_offsets = np.arange(shape.num_kv_heads)[:, None] * shape.num_stored
    found = []
    for index in range(tables.shape[1] // width):
        start, end = index * shape.key_tile, (index + 1) * shape.key_tile
        first, last = _who_meets(positions, start, end, cut)
        if first >= last:
            continue
        blocks = tables[first:last, None, index * width : (index + 1) * width] + head_offsets
        unmasked = int(np.searchsorted(-positions[:, 0], -(end - 1), side="right"))
        first_masked = first if cut.window is not None else max(first, unmasked)
        mask = _mask(positions[first_masked:last], start, end, cut.window)
        found.append(KeyTile(first, last, torch.from_numpy(blocks.reshape(-1)), first_masked, mask))
    return tuple(found)


def _who_meets(positions: _Ints, start: int, end: int, cut: _Cut) -> tuple[int, int]:
    """Return the range of query tiles that go through the keys ``start`` to ``end - 1``."""
    if cut.length is not None:
        return 0, len(positions)
    descending = -positions[:, 0]
    first = 0
    if cut.window is not None:  # queries so late that even the tile's last key is out of sight
        first = int(np.searchsorted(descending, -(end - 1 + cut.window), side="right"))
    last_start = start - positions.shape[1] + 1
    return first, int(np.searchsorted(descending, -last_start, side="right"))


def _mask(positions: _Ints, start: int, end: int, window: int | None) -> Tensor | None:
    keys = np.arange(start, end)
    queries = positions[:, :, None]
    is_seen = keys <= queries
    if window is not None:
        is_seen &= keys > queries - window
    if is_seen.all():
        return None
    mask = np.where(is_seen, np.float32(0), np.float32(-np.inf))
    return torch.from_numpy(mask[:, None, :, None, :])
