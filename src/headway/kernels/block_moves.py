"""How moves of blocks that take effect one after the other are done many at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.core.plan import BlockMove


def independent_runs(moves: Sequence[BlockMove]) -> Iterator[list[BlockMove]]:
    """Cut moves inside one space into runs that may read all sources before they write any target.

    Within a run no source and no target is the target of an earlier move. The runs, one after the
    other, do what the moves would, one after the other.
    """
    run: list[BlockMove] = []
    written: set[int] = set()
    for move in moves:
        if move.source in written or move.target in written:
            yield run
            run, written = [], set()
        run.append(move)
        written.add(move.target)
    if run:
        yield run
