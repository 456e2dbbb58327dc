"""What of a plan a cost model sees."""

from __future__ import annotations

from headway.core.costs import StepCosts
from headway.core.plan import BlockMove, Padding, SequenceId, Slice, StepPlan
from headway.profiles.shape import Chunk, StepShape


def plan(*parts: tuple[int, int], padding: Padding | None = None, swapped: int = 0) -> StepPlan:
    slices = tuple(Slice(SequenceId(i), *part, True) for i, part in enumerate(parts))
    moves = tuple(BlockMove(each, each) for each in range(swapped))
    return StepPlan(0, slices, padding=padding, swap_out=moves, swap_in=moves[:1])


def test_chunks_come_with_what_is_cached_and_decodes_with_their_contexts() -> None:
    shape = StepShape.of_plan(plan((99, 1), (0, 7), (64, 16), (4, 1), swapped=3))
    assert shape.chunks == (Chunk(0, 7), Chunk(64, 16))
    assert (shape.num_decodes, shape.decode_context) == (2, 105)
    assert (shape.longest_decode, shape.shortest_decode) == (100, 5)
    assert (shape.num_prefill_tokens, shape.num_tokens, shape.num_sequences) == (23, 25, 4)
    assert shape.num_swapped_blocks == 4


def test_a_step_without_decodes_has_no_contexts() -> None:
    assert StepShape.of_plan(plan((0, 7))) == StepShape((Chunk(0, 7),))
    assert StepShape.of_plan(plan()) == StepShape()


def test_padding_is_computed_like_what_it_pads() -> None:
    prefilling = StepShape.of_plan(plan((0, 3), (2, 5), padding=Padding(4, 5, 9)))
    assert prefilling == StepShape((Chunk(4, 5),) * 4)
    decoding = StepShape.of_plan(plan((3, 1), padding=Padding(4, 1, 9)))
    assert decoding == StepShape((), 4, 36, 9, 9)


def test_linear_costs_count_a_shape_as_they_count_features() -> None:
    costs = StepCosts(base_s=1000, prefill_token_s=1, decode_s=100, swap_block_s=0.5)
    shape = StepShape.of_plan(plan((99, 1), (0, 7), swapped=1))
    assert costs.seconds(shape) == 1000 + 7 + 100 + 1
