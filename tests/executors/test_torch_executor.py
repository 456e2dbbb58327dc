"""What is special to the torch executor: options, faults, what earlier owners leave in blocks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway.core.plan import (
    BlockMove,
    NewSequence,
    Padding,
    RequestId,
    SequenceId,
    Slice,
    StepPlan,
    TableUpdate,
)
from headway.core.sampling import SamplingParams
from headway.errors import ConfigError, ModelError
from headway.executors.sampling import uniform
from headway.models.checkpoint import Checkpoint
from headway.testing.tiny_models import ArrayTensor, tiny_checkpoint, tiny_config

pytest.importorskip("torch")

from headway.executors.torch import TorchExecutor
from headway.kernels import torch_linear
from headway.kernels.torch_attention import TorchPool
from headway.kernels.torch_layout import QueryGroup

POISON = 5  # a token whose embedding is infinite


def executor(checkpoint: Checkpoint | None = None, **options: Any) -> TorchExecutor:
    arguments = {"num_blocks": 8, "block_size": 4, **options}
    return TorchExecutor(checkpoint or tiny_checkpoint(), **arguments)


def poisoned(checkpoint: Checkpoint, token_id: int = POISON) -> Checkpoint:
    name = "model.embed_tokens.weight"
    values = checkpoint.tensors[name].to_float32()
    values[token_id] = np.inf
    return replace(checkpoint, tensors={**checkpoint.tensors, name: ArrayTensor(values)})


def sequence(sequence_id: int, *prompt: int, **sampling: Any) -> NewSequence:
    params = SamplingParams(**{"max_tokens": 9, "temperature": 0.0, **sampling})
    return NewSequence(SequenceId(sequence_id), RequestId(f"{sequence_id}"), 0, prompt, params)


def first_step(*parts: tuple[NewSequence, tuple[int, ...]], step_id: int = 0) -> StepPlan:
    """Whole prompts, each in its blocks."""
    return StepPlan(
        step_id,
        tuple(Slice(n.sequence_id, 0, len(n.prompt_token_ids), True) for n, _ in parts),
        tuple(n for n, _ in parts),
        tuple(TableUpdate(n.sequence_id, 0, blocks) for n, blocks in parts),
    )


def test_values_that_are_not_finite_fail_one_sequence() -> None:
    sick, well = sequence(1, 1, POISON, 2), sequence(2, 1, 3, 2)
    result = executor(poisoned(tiny_checkpoint())).run(first_step((sick, (0,)), (well, (1,))))
    assert result.failures == {1: "the model's values are not finite"}
    expected = executor().run(first_step((well, (1,))))
    assert result.tokens == expected.tokens


def test_logits_that_are_not_finite_fail_one_sequence() -> None:
    checkpoint = tiny_checkpoint()
    head = checkpoint.tensors["lm_head.weight"].to_float32()
    head[7] = np.inf
    sick = replace(checkpoint, tensors={**checkpoint.tensors, "lm_head.weight": ArrayTensor(head)})
    result = executor(sick).run(first_step((sequence(1, 1, 2), (0,))))
    assert result.failures == {1: "the logits are not finite"}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_chunk_that_does_not_sample_fails_where_it_is_not_finite(count: int) -> None:
    """Its blocks must not be shared, even those of the tokens before it in the chunk."""
    subject = executor(poisoned(tiny_checkpoint()))
    sick, well = sequence(1, 1, 2, 3, POISON, 4, 5), sequence(2, 1, 2, 3, 4, 5, 6)
    plan = first_step((sick, (0, 1)), (well, (2, 3)))
    start = 4 - count
    begin = [Slice(SequenceId(key), 0, start, False) for key in (1, 2) if start]
    result = subject.run(replace(plan, slices=tuple(begin)))
    assert not result.failures
    middle = tuple(Slice(SequenceId(key), start, count, False) for key in (1, 2))
    result = subject.run(StepPlan(1, middle))
    assert set(result.failures) == {1}


def test_plans_already_made_for_a_failed_sequence_report_it_again() -> None:
    subject = executor(poisoned(tiny_checkpoint()))
    subject.run(first_step((sequence(1, POISON), (0,)), (sequence(2, 3), (1,))))
    both = (Slice(SequenceId(1), 1, 1, True), Slice(SequenceId(2), 1, 1, True))
    result = subject.run(StepPlan(1, both))
    assert set(result.failures) == {1}
    assert set(result.tokens) == {2}
    alone = subject.run(StepPlan(2, both[:1]))
    assert set(alone.failures) == {1}
    assert not alone.tokens


def test_prompt_scores_that_are_not_finite_fail_the_sequence() -> None:
    sick = sequence(1, 2, 3, POISON, 4, prompt_logprobs=1)
    result = executor(poisoned(tiny_checkpoint())).run(first_step((sick, (0,))))
    assert set(result.failures) == {1}
    assert not result.tokens
    assert not result.prompt_logprobs


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7])
def test_what_a_sick_owner_left_in_a_block_does_no_harm(length: int) -> None:
    subject = executor(poisoned(tiny_checkpoint()))
    sick = sequence(1, *[POISON] * 8)
    subject.run(first_step((sick, (0, 1))))
    well = sequence(2, *range(10, 10 + length))
    plan = replace(first_step((well, (1, 0)), step_id=1), released=(SequenceId(1),))
    decode = StepPlan(2, (Slice(SequenceId(2), length, 1, True),))
    expected = executor()
    clean = replace(plan, released=())
    assert subject.run(plan).tokens == expected.run(clean).tokens
    assert subject.run(decode).tokens == expected.run(decode).tokens


@pytest.mark.parametrize("way", ["at once", "later", "twice", "by way of the swap space"])
@pytest.mark.parametrize("num_shared", [1, 2, 3])
def test_what_a_copy_brings_along_does_no_harm(way: str, num_shared: int) -> None:
    """The owner of the first block is sick from where the prompts part."""
    subject = executor(poisoned(tiny_checkpoint()), num_swap_blocks=4)
    common = tuple(range(10, 10 + num_shared))
    sick, well = sequence(1, *common, *[POISON] * 4), sequence(2, *common, 20)
    plan = first_step((sick, (0, 1)))
    subject.run(replace(plan, slices=(Slice(SequenceId(1), 0, num_shared, False),)))
    subject.run(StepPlan(1, (Slice(SequenceId(1), num_shared, 4, True),)))
    steps = {
        "at once": [StepPlan(0, (), copies=(BlockMove(0, 3),))],
        "later": [StepPlan(0, (), copies=(BlockMove(0, 3),)), StepPlan(1, ())],
        "twice": [
            StepPlan(0, (), copies=(BlockMove(0, 2),)),
            StepPlan(1, (), copies=(BlockMove(2, 3),)),
        ],
        "by way of the swap space": [
            StepPlan(0, (), copies=(BlockMove(0, 2),)),
            StepPlan(1, (), swap_out=(BlockMove(2, 1),)),
            StepPlan(2, (), swap_in=(BlockMove(1, 3),)),
        ],
    }[way]
    *before, last = steps
    for step in before:
        subject.run(step)
    start = Slice(SequenceId(2), num_shared, 1, True)
    tables = (TableUpdate(SequenceId(2), 0, (3, 4)),)
    result = subject.run(
        replace(last, slices=(start,), new_sequences=(well,), table_updates=tables)
    )
    decode = StepPlan(9, (Slice(SequenceId(2), num_shared + 1, 1, True),))
    expected = executor()
    assert result.tokens == expected.run(first_step((well, (0, 1)))).tokens
    assert subject.run(decode).tokens == expected.run(decode).tokens


def test_padding_that_is_sick_does_no_harm() -> None:
    """Rows of padding hold token 0, whatever its embedding."""
    well = (sequence(1, 1, 3, 2, logprobs=97), sequence(2, 4, logprobs=97))
    plan = replace(first_step((well[0], (0,)), (well[1], (1,))), padding=Padding(5, 6, 20))
    subject, expected = executor(poisoned(tiny_checkpoint(), token_id=0)), executor()
    assert subject.run(plan).tokens == expected.run(replace(plan, padding=None)).tokens
    decode = StepPlan(1, (Slice(SequenceId(1), 3, 1, True), Slice(SequenceId(2), 1, 1, True)))
    padded = replace(decode, padding=Padding(4, 1, 30))
    assert subject.run(padded).tokens == expected.run(decode).tokens


def test_padding_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as it says go through every product, and each meets as many keys."""
    rows: list[int] = []
    queries: list[int] = []
    keys: set[int] = set()
    attend, multiply = TorchPool.attend, "headway.kernels.torch_ops.multiply"

    def watched_attend(self: TorchPool, x: Any, group: QueryGroup) -> Any:
        queries.append(group.num_tiles * group.num_tokens)
        for tile in group.key_tiles:
            assert (tile.first, tile.last) == (0, group.num_tiles)
        keys.add(4 * sum(tile.blocks.numel() // (2 * tile.last) for tile in group.key_tiles))
        return attend(self, x, group)

    def watched_multiply(x: Any, matrix: Any) -> Any:
        rows.append(x.shape[0])
        return torch_linear.multiply(x, matrix)

    monkeypatch.setattr(TorchPool, "attend", watched_attend)
    monkeypatch.setattr(multiply, watched_multiply)
    subject = executor(num_blocks=100)
    plan = first_step((sequence(1, *range(9)), (0, 1, 2)), (sequence(2, 1, 2), (3, 4)))
    subject.run(replace(plan, padding=Padding(5, 64, 300)))
    num_layers, num_products, tile = 2, 4, 128
    assert rows[:-1] == [5 * 64] * num_layers * num_products
    assert rows[-1] == 8  # one tile of rows for the logits of two
    assert all(count >= 5 * 64 for count in queries)
    assert keys == {-(-300 // tile) * tile}


@pytest.mark.parametrize(
    "sampling", [{"logit_bias": ((97, 1.0),)}, {"stop_token_ids": (-1,)}, {"stop_token_ids": (97,)}]
)
def test_ids_outside_the_vocabulary_fail_one_sequence(sampling: dict[str, Any]) -> None:
    bad = sequence(1, 1, 2, **sampling)
    result = executor().run(first_step((bad, (0,)), (sequence(2, 1, 2), (1,))))
    assert set(result.failures) == {1}
    assert "97" in result.failures[SequenceId(1)]
    assert set(result.tokens) == {2}


@pytest.mark.parametrize(
    "slices",
    [
        (Slice(SequenceId(1), 0, 1, True),),  # samples in the middle of known tokens
        (Slice(SequenceId(1), 2, 1, True), Slice(SequenceId(1), 2, 1, True)),
    ],
)
def test_a_slice_that_would_corrupt_its_sequence_is_refused(slices: tuple[Slice, ...]) -> None:
    subject = executor()
    subject.run(first_step((sequence(1, 1, 2), (0,))))
    with pytest.raises(ValueError, match="sequence 1"):
        subject.run(StepPlan(1, slices))


def test_a_sequence_that_is_already_known_is_refused() -> None:
    subject = executor()
    subject.run(first_step((sequence(1, 1, 2), (0,))))
    with pytest.raises(ValueError, match="sequence 1"):
        subject.run(StepPlan(1, (), (sequence(1, 3),)))


def test_positions_beyond_the_context_are_refused() -> None:
    subject = executor(tiny_checkpoint(tiny_config(max_position_embeddings=6)))
    with pytest.raises(ValueError, match="context of 6"):
        subject.run(first_step((sequence(1, *range(7)), (0, 1))))


def test_a_refused_plan_leaves_the_pool_as_it_was() -> None:
    subject, other = executor(), executor()
    plan = first_step((sequence(1, 1, 2, 3), (0,)))
    decode = StepPlan(2, (Slice(SequenceId(1), 3, 1, True),))
    other.run(plan)
    subject.run(plan)
    with pytest.raises(ValueError, match="unknown"):
        subject.run(
            StepPlan(
                1,
                (Slice(SequenceId(2), 0, 2, True), Slice(SequenceId(9), 0, 1, True)),
                (sequence(2, 7, 8),),
                (TableUpdate(SequenceId(2), 0, (0,)),),
            )
        )
    assert subject.run(decode).tokens == other.run(decode).tokens


def test_each_draw_takes_the_number_of_its_output_position() -> None:
    """With equal logits, the token is where the number falls in the vocabulary."""
    checkpoint = tiny_checkpoint()
    head = ArrayTensor(np.zeros_like(checkpoint.tensors["lm_head.weight"].to_float32()))
    flat = replace(checkpoint, tensors={**checkpoint.tensors, "lm_head.weight": head})
    new = replace(sequence(1, 4, 5, 6, temperature=0.7, seed=21), index=2)
    subject = executor(flat)
    result = subject.run(first_step((new, (0, 1, 2))))
    drawn = [result.tokens[SequenceId(1)].token_id]
    for position in range(3, 9):
        step = StepPlan(position, (Slice(SequenceId(1), position, 1, True),))
        drawn.append(subject.run(step).tokens[SequenceId(1)].token_id)
    assert drawn == [int(uniform(21, 2, position) * 97) for position in range(7)]


def test_bfloat16_answers_are_close_to_float32() -> None:
    prompt = sequence(1, *range(20), logprobs=97)
    values = []
    for dtype in ("float32", "bfloat16"):
        result = executor(dtype=dtype).run(first_step((prompt, (0, 1, 2, 3, 4))))
        logprobs = result.tokens[SequenceId(1)].logprobs
        assert logprobs is not None
        values.append(np.array([value for _, value in sorted(logprobs.top)]))
    difference = np.abs(values[0] - values[1]).max()
    assert 0 < difference < 0.03 * np.abs(values[0]).max()


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float16"},
        {"num_blocks": 0},
        {"block_size": 0},
        {"num_threads": 0},
        {"num_swap_blocks": -1},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        executor(**options)


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"gpt2.*llama, mistral, qwen2, qwen3"):
        executor(tiny_checkpoint(tiny_config(architecture="gpt2")))


def test_time_of_a_step_is_measured() -> None:
    result = executor().run(first_step((sequence(1, 1, 2), (0,))))
    assert 0 < result.elapsed_s < math.inf
