"""Checks of the parts of a plan that name no sequence: what is moved, and what padding covers.

They come before anything takes effect, and need no tensor library.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.plan import BlockMove, Padding, Slice, StepPlan


def check_moves(plan: StepPlan, *, num_blocks: int, num_swap_blocks: int) -> None:
    """Check that all moves stay inside the pool and the swap space.

    Raises:
        ValueError: a block does not exist, or one step swaps two blocks to one place.
    """
    if not (plan.swap_out or plan.copies or plan.swap_in):
        return
    pool, swap = ("block", num_blocks), ("swap block", num_swap_blocks)
    for what, moves, sources, targets in (
        ("swap_out", plan.swap_out, pool, swap),
        ("copies", plan.copies, pool, pool),
        ("swap_in", plan.swap_in, swap, pool),
    ):
        if moves:
            _check_ids(what, sources, [move.source for move in moves])
            _check_ids(what, targets, [move.target for move in moves])
    _check_distinct("swap_out", plan.swap_out)
    _check_distinct("swap_in", plan.swap_in)


def check_padding(padding: Padding, slices: Sequence[Slice], *, max_positions: int) -> None:
    """Check that padding covers the slices and is no longer than a sequence can be.

    Raises:
        ValueError: it is too small or too large.
    """
    num_rows = max((part.count for part in slices), default=1)
    length = max((part.start + part.count for part in slices), default=1)
    if padding.num_sequences < max(len(slices), 1):
        raise ValueError(f"padding: {padding.num_sequences} sequences for {len(slices)} slices")
    if padding.num_rows < num_rows:
        raise ValueError(f"padding: {padding.num_rows} rows for a slice of {num_rows}")
    if padding.length < max(length, padding.num_rows):
        raise ValueError(
            f"padding: length {padding.length} for {padding.num_rows} rows and slices that end "
            f"at {length}"
        )
    if padding.length > max_positions:
        raise ValueError(f"padding: length {padding.length} goes beyond {max_positions} positions")


def _check_ids(what: str, space: tuple[str, int], block_ids: Sequence[int]) -> None:
    kind, number = space
    for block_id in block_ids:
        if not 0 <= block_id < number:
            raise ValueError(f"{what}: {kind} {block_id} is not one of {number}")


def _check_distinct(what: str, moves: Sequence[BlockMove]) -> None:
    targets = [move.target for move in moves]
    if len(set(targets)) < len(targets):
        twice = next(target for target in targets if targets.count(target) > 1)
        raise ValueError(f"{what}: two blocks go to {twice}")
