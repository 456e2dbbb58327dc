"""Invariant 9 on the real model: the same tokens alone, together, in chunks, and after preemption."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from headway.core.events import Finished, TokenReady
from headway.core.limits import SchedulerLimits
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.engine.clock import RealClock
from headway.engine.loop import Engine
from headway.models.loading import open_checkpoint

pytest.importorskip("torch")

from headway.executors.torch import TorchExecutor  # noqa: E402 - needs torch

pytestmark = pytest.mark.slow

BLOCK_SIZE = 16
NUM_BLOCKS = 96


@pytest.fixture(scope="module")
def executor(smollm2_gguf: Path) -> TorchExecutor:
    checkpoint = open_checkpoint(smollm2_gguf)
    return TorchExecutor(checkpoint, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)


@cache
def requests(num_requests: int) -> tuple[Request, ...]:
    """Requests of mixed lengths; every fourth one is sampled with a seed, the others are greedy."""
    chance = random.Random(7)
    return tuple(
        Request(
            request_id=RequestId(f"r{number}"),
            prompt_token_ids=tuple(
                chance.randint(100, 40_000) for _ in range(chance.choice([3, 17, 40, 75, 150]))
            ),
            sampling=SamplingParams(
                max_tokens=chance.randint(4, 32),
                temperature=0.9 if number % 4 == 3 else 0.0,
                top_p=0.95,
                seed=number,
            ),
        )
        for number in range(num_requests)
    )


def run(
    executor: TorchExecutor,
    work: tuple[Request, ...],
    *,
    num_blocks: int = NUM_BLOCKS,
    chunk: int | None = None,
) -> tuple[dict[str, list[int]], int]:
    """Return each request's tokens, and how often the scheduler preempted."""
    limits = SchedulerLimits(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=512,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_prefill_chunk_tokens=chunk,
    )
    scheduler = Scheduler(limits)
    engine = Engine(scheduler, Renumbering(executor), RealClock())
    tokens: dict[str, list[int]] = {request.request_id: [] for request in work}
    num_finished = 0
    for request in work:
        engine.submit(request)
    while not (outcome := engine.step()).is_idle:
        scheduler.check()
        for event in outcome.events:
            if isinstance(event, TokenReady):
                tokens[event.request_id].append(event.token.token_id)
            num_finished += isinstance(event, Finished)
    assert num_finished == len(work)
    assert scheduler.statistics().num_free_blocks == num_blocks
    return tokens, scheduler.statistics().num_preemptions


class Renumbering:
    """Lets one executor, whose weights are costly to load, serve several schedulers in turn."""

    _next = 0

    def __init__(self, executor: TorchExecutor) -> None:
        self._executor = executor
        self._offset = Renumbering._next
        Renumbering._next += 1_000_000

    def run(self, plan):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        def shift(parts):  # type: ignore[no-untyped-def]
            return tuple(replace(p, sequence_id=p.sequence_id + self._offset) for p in parts)

        result = self._executor.run(
            replace(
                plan,
                slices=shift(plan.slices),
                new_sequences=shift(plan.new_sequences),
                table_updates=shift(plan.table_updates),
                released=tuple(s + self._offset for s in plan.released),
            )
        )
        return replace(
            result,
            tokens={s - self._offset: token for s, token in result.tokens.items()},
            failures={s - self._offset: why for s, why in result.failures.items()},
        )


@pytest.fixture(scope="module")
def alone(executor: TorchExecutor) -> dict[str, list[int]]:
    """What each request gets when nobody shares the machine with it."""
    tokens: dict[str, list[int]] = {}
    for request in requests(64):
        tokens |= run(executor, (request,))[0]
    return tokens


@pytest.mark.parametrize("chunk", [16, 64, None])
def test_64_requests_with_preemption_get_the_tokens_they_get_alone(
    executor: TorchExecutor, alone: dict[str, list[int]], chunk: int | None
) -> None:
    tokens, num_preemptions = run(executor, requests(64), num_blocks=40, chunk=chunk)
    print(f"chunk {chunk}: {num_preemptions} preemptions")
    assert num_preemptions > 0, "the pool is too large to prove anything"
    assert tokens == alone
