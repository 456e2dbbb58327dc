"""What is special to the torch executor: options, faults, what earlier owners leave in blocks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway.core.plan import NewSequence, RequestId, SequenceId, Slice, StepPlan, TableUpdate
from headway.core.sampling import SamplingParams
from headway.errors import ConfigError, ModelError
from headway.executors.sampling import uniform
from headway.models.checkpoint import Checkpoint
from headway.testing.tiny_models import ArrayTensor, tiny_checkpoint, tiny_config

pytest.importorskip("torch")

from headway.executors.torch import TorchExecutor

POISON = 5  # a token whose embedding is infinite


def executor(checkpoint: Checkpoint | None = None, **options: Any) -> TorchExecutor:
    arguments = {"num_blocks": 8, "block_size": 4, **options}
    return TorchExecutor(checkpoint or tiny_checkpoint(), **arguments)


def poisoned(checkpoint: Checkpoint) -> Checkpoint:
    name = "model.embed_tokens.weight"
    values = checkpoint.tensors[name].to_float32()
    values[POISON] = np.inf
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


def test_logits_that_are_not_finite_fail_one_sequence() -> None:
    sick, well = sequence(1, 1, POISON, 2), sequence(2, 1, 3, 2)
    result = executor(poisoned(tiny_checkpoint())).run(first_step((sick, (0,)), (well, (1,))))
    assert result.failures == {1: "the logits are not finite"}
    expected = executor().run(first_step((well, (1,))))
    assert result.tokens == expected.tokens


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
    "options", [{"dtype": "float16"}, {"num_blocks": 0}, {"block_size": 0}, {"num_threads": 0}]
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
