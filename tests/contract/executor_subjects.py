"""The executors under the contract, and what its tests are written with.

To put another executor under it, add a Subject.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headway.core.plan import (
    BlockMove,
    NewSequence,
    Padding,
    RequestId,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TableUpdate,
)
from headway.core.ports import Executor
from headway.core.sampling import SamplingParams

NUM_BLOCKS, NUM_SWAP_BLOCKS, BLOCK_SIZE, VOCAB = 64, 8, 4, 97

Moves = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Subject:
    """An executor under the contract.

    ``make`` gives a fresh one with the pool, swap space and vocabulary above. ``spoil`` turns a
    sequence into one that the executor must fail when it samples. ``scores`` says if it knows
    log-probabilities.
    """

    name: str
    make: Callable[[], Executor]
    spoil: Callable[[NewSequence], NewSequence]
    scores: bool


def _torch(dtype: Any) -> Subject:
    def make() -> Executor:
        pytest.importorskip("torch")
        from headway.executors.torch import TorchExecutor
        from headway.testing.tiny_models import tiny_checkpoint, tiny_config

        checkpoint = tiny_checkpoint(tiny_config(vocab_size=VOCAB))
        return TorchExecutor(
            checkpoint,
            num_blocks=NUM_BLOCKS,
            num_swap_blocks=NUM_SWAP_BLOCKS,
            block_size=BLOCK_SIZE,
            dtype=dtype,
            num_threads=1,
        )

    def spoil(new: NewSequence) -> NewSequence:
        return replace(new, prompt_token_ids=(*new.prompt_token_ids[:-1], VOCAB))

    return Subject(f"torch-{dtype}", make, spoil, scores=True)


def _cpu(name: str, storage: str, **options: Any) -> Subject:
    def make() -> Executor:
        pytest.importorskip("headway.kernels._native", reason="the native kernels are not built")
        from headway.executors.cpu import CpuExecutor
        from headway.testing.tiny_models import tiny_checkpoint, tiny_config

        return CpuExecutor(
            tiny_checkpoint(tiny_config(vocab_size=VOCAB), storage=storage),
            num_blocks=NUM_BLOCKS,
            num_swap_blocks=NUM_SWAP_BLOCKS,
            block_size=BLOCK_SIZE,
            num_threads=2,
            **options,
        )

    return Subject(f"cpu-{name}", make, _torch("float32").spoil, scores=True)


def _cpu_fallback(kv_dtype: Any) -> Subject:
    native = _cpu(f"fallback-{kv_dtype}", "Q4_1")

    def make() -> Executor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headway.executors.cpu.has_native_kernels", lambda: False)
            from headway.executors.cpu import CpuExecutor
            from headway.testing.tiny_models import tiny_checkpoint, tiny_config

            return CpuExecutor(
                tiny_checkpoint(tiny_config(vocab_size=VOCAB), storage="Q4_1"),
                num_blocks=NUM_BLOCKS,
                num_swap_blocks=NUM_SWAP_BLOCKS,
                block_size=BLOCK_SIZE,
                kv_dtype=kv_dtype,
            )

    return replace(native, make=make)


def _simulated() -> Subject:
    from headway.core.costs import StepCosts
    from headway.executors.simulated import SimulatedExecutor

    class NoTime:
        def sleep(self, seconds: float) -> None:
            pass

    def make() -> Executor:
        cost = StepCosts(base_s=0.01, prefill_token_s=0.001, decode_s=0.002)
        return SimulatedExecutor(
            cost,
            NoTime(),
            num_blocks=NUM_BLOCKS,
            num_swap_blocks=NUM_SWAP_BLOCKS,
            block_size=BLOCK_SIZE,
            vocab_size=VOCAB,
        )

    def spoil(new: NewSequence) -> NewSequence:
        return replace(new, sampling=replace(new.sampling, logprobs=1))

    return Subject("simulated", make, spoil, scores=False)


def _replay() -> Subject:
    """The replay executor, with a simulated one at its side whose results it is given."""
    from headway.executors.replay import ReplayExecutor

    simulated = _simulated()

    class Recorded:
        def __init__(self) -> None:
            self._original = simulated.make()

        def run(self, plan: StepPlan) -> StepResult:
            result = self._original.run(plan)
            return ReplayExecutor({plan.step_id: result}).run(plan)

    return Subject("replay", Recorded, simulated.spoil, scores=False)


SUBJECTS = [
    _torch("float32"),
    _torch("bfloat16"),
    _cpu("q4_1", "Q4_1"),
    _cpu("float32", "F32", kv_dtype="float32"),
    _cpu("bfloat16", "BF16"),
    _cpu("int8", "Q8_0", kv_dtype="int8"),
    _cpu_fallback("bfloat16"),
    _cpu_fallback("int8"),
    _simulated(),
    _replay(),
]


def new(sequence_id: int, num_tokens: int = 6, **sampling: Any) -> NewSequence:
    rng = random.Random(sequence_id)
    fields: dict[str, Any] = {"max_tokens": 50, "temperature": 1.0, "seed": 7, **sampling}
    prompt = tuple(rng.randrange(VOCAB) for _ in range(num_tokens))
    return NewSequence(
        SequenceId(sequence_id), RequestId(f"r{sequence_id}"), 0, prompt, SamplingParams(**fields)
    )


def part(sequence_id: int, start: int, count: int, sample: bool = True) -> Slice:
    return Slice(SequenceId(sequence_id), start, count, sample)


def table(sequence_id: int, *block_ids: int, first: int = 0) -> TableUpdate:
    return TableUpdate(SequenceId(sequence_id), first, block_ids)


class Steps:
    """Numbers plans and runs them."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.step_id = 0

    def run(
        self,
        slices: Sequence[Slice] = (),
        news: Sequence[NewSequence] = (),
        tables: Sequence[TableUpdate] = (),
        released: Sequence[int] = (),
        *,
        swap_out: Moves = (),
        copies: Moves = (),
        swap_in: Moves = (),
        padding: tuple[int, int, int] | None = None,
    ) -> StepResult:
        plan = StepPlan(
            self.step_id,
            tuple(slices),
            tuple(news),
            tuple(tables),
            tuple(SequenceId(i) for i in released),
            swap_out=tuple(BlockMove(*move) for move in swap_out),
            copies=tuple(BlockMove(*move) for move in copies),
            swap_in=tuple(BlockMove(*move) for move in swap_in),
            padding=None if padding is None else Padding(*padding),
        )
        self.step_id += 1
        return self.executor.run(plan)

    def sampled(self, sequence_id: int, start: int, count: int) -> list[SampledToken]:
        """Decode alone; the table is long enough."""
        results = [self.run([part(sequence_id, start + i, 1)]) for i in range(count)]
        return [r.tokens[SequenceId(sequence_id)] for r in results]

    def decode(self, sequence_id: int, start: int, count: int) -> list[int]:
        """Do the same; the ids alone."""
        return [token.token_id for token in self.sampled(sequence_id, start, count)]


def sampled_alone(subject: Subject, sequence: NewSequence, count: int) -> list[SampledToken]:
    """What the sequence draws alone, its prompt in one piece, in blocks 0, 1, 2, …"""
    steps, key = Steps(subject.make()), sequence.sequence_id
    length = len(sequence.prompt_token_ids)
    first = steps.run([part(key, 0, length)], [sequence], [table(key, *range(16))])
    return [first.tokens[key], *steps.sampled(key, length, count - 1)]


def answer(subject: Subject, sequence: NewSequence, count: int) -> list[int]:
    """Do the same; the ids alone."""
    return [token.token_id for token in sampled_alone(subject, sequence, count)]
