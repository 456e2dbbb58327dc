"""A step cut into passes: nothing is lost, and no bit changes."""

from __future__ import annotations

from typing import Any

import pytest
from executor_play import NUM_BLOCKS, NUM_SWAP_BLOCKS, PROMPT, VOCAB, Play, observed
from hypothesis import given
from hypothesis import strategies as st

from headway.core.plan import SequenceId, Slice
from headway.executors import cpu
from headway.executors.passes import passes
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

parts = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40), st.booleans()), max_size=12)


@given(parts, st.integers(1, 60))
def test_every_position_is_in_one_pass(given_parts: list[Any], max_rows: int) -> None:
    work = [(Slice(SequenceId(i), *part), i) for i, part in enumerate(given_parts)]
    cut = list(passes(work, max_rows))
    rows = [sum(part.count for part, _ in some) for some in cut]
    assert all(num == max_rows for num in rows[:-1])
    assert all(0 < num <= max_rows for num in rows)
    pieces = [item for some in cut for item in some]
    for part, state in work:
        mine = [piece for piece, owner in pieces if owner == state]
        positions = [p for piece in mine for p in range(piece.start, piece.start + piece.count)]
        assert positions == list(range(part.start, part.start + part.count))
        assert [piece.sample for piece in mine] == [False] * (len(mine) - 1) + [part.sample]
    assert [owner for _, owner in pieces] == sorted(owner for _, owner in pieces)


@pytest.mark.parametrize("max_rows", [1, 7, 64])
def test_passes_change_no_bit(monkeypatch: pytest.MonkeyPatch, max_rows: int) -> None:
    """Answers, and the log-probabilities of every position of the prompt and of the output."""

    def play(**options: Any) -> list[Any]:
        checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB), storage="Q4_1")
        executor = cpu.CpuExecutor(
            checkpoint, num_blocks=NUM_BLOCKS, num_swap_blocks=NUM_SWAP_BLOCKS, block_size=8
        )
        return Play(executor=executor, **options).observe(observed(1))

    expected = play(chunk=PROMPT)
    monkeypatch.setattr(cpu, "_MAX_PASS_ROWS", max_rows)
    assert play(chunk=PROMPT, neighbours=3) == expected
    assert play(chunk=60, neighbours=2, swap_at=(2, 8)) == expected
