"""Moves done many at a time come to the same as moves done one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.core.plan import BlockMove
from headway.kernels.block_moves import independent_runs

SIZE = 6
moves_in_a_small_space = st.lists(
    st.builds(BlockMove, st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=12
)


@given(moves_in_a_small_space)
def test_runs_do_what_the_moves_do_in_order(moves: list[BlockMove]) -> None:
    expected, found = list(range(SIZE)), list(range(SIZE))
    for source, target in moves:
        expected[target] = expected[source]
    for run in independent_runs(moves):
        read = [found[source] for source, _ in run]
        targets = [target for _, target in run]
        assert len(set(targets)) == len(targets)
        for target, block in zip(targets, read, strict=True):
            found[target] = block
    assert found == expected


@given(moves_in_a_small_space)
def test_runs_keep_every_move_in_its_place(moves: list[BlockMove]) -> None:
    runs = list(independent_runs(moves))
    assert [move for run in runs for move in run] == moves
    assert all(runs)


def test_moves_that_do_not_meet_are_one_run() -> None:
    moves = [BlockMove(0, 5), BlockMove(0, 6), BlockMove(1, 7), BlockMove(2, 0)]
    assert list(independent_runs(moves)) == [moves]
