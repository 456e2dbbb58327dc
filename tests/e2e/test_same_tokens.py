"""Invariant 9 on the real model: the same tokens alone, together, in chunks, after preemption."""

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
from headway.models.checkpoint import Checkpoint
from headway.models.loading import open_checkpoint

pytest.importorskip("torch")

from headway.executors.torch import TorchExecutor

pytestmark = pytest.mark.slow

BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def checkpoint(smollm2_gguf: Path) -> Checkpoint:
    return open_checkpoint(smollm2_gguf)


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
    checkpoint: Checkpoint,
    work: tuple[Request, ...],
    *,
    num_blocks: int,
    chunk: int | None = None,
    max_num_seqs: int = 64,
) -> tuple[dict[str, list[int]], int]:
    """Return each request's tokens, and how often the scheduler preempted."""
    executor = TorchExecutor(checkpoint, num_blocks=num_blocks, block_size=BLOCK_SIZE)
    limits = SchedulerLimits(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=512,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=512,
        max_prefill_chunk_tokens=chunk,
    )
    scheduler = Scheduler(limits)
    engine = Engine(scheduler, executor, RealClock())
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


@pytest.fixture(scope="module")
def alone(checkpoint: Checkpoint) -> dict[str, list[int]]:
    """What each request gets when it has the machine and the whole pool to itself."""
    tokens, num_preemptions = run(checkpoint, requests(64), num_blocks=400, max_num_seqs=1)
    assert num_preemptions == 0
    return tokens


@pytest.mark.parametrize("chunk", [16, 64, None])
def test_64_requests_with_preemption_get_the_tokens_they_get_alone(
    checkpoint: Checkpoint, alone: dict[str, list[int]], chunk: int | None
) -> None:
    tokens, num_preemptions = run(checkpoint, requests(64), num_blocks=24, chunk=chunk)
    print(f"chunk {chunk}: {num_preemptions} preemptions")
    assert num_preemptions > 0, "the pool is too large to prove anything"
    assert tokens == alone
