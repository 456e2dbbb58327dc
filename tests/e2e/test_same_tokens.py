"""Invariant 9 on the real model: the same tokens whatever the scheduler does with a request.

On each executor that computes it, and on the cpu executor in several precisions.

Alone, batched, chunked, preempted by recompute or by swap, from the prefix cache, and padded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from headway.core.config import SchedulerConfig
from headway.core.events import Finished, TokenReady
from headway.core.limits import Batching, PreemptionChoice, SchedulerLimits
from headway.core.plan import RequestId
from headway.core.ports import Executor
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.statistics import Statistics
from headway.engine.clock import RealClock
from headway.engine.loop import Engine
from headway.executors.cpu import CpuExecutor
from headway.models.loading import open_checkpoint

pytestmark = pytest.mark.slow

BLOCK_SIZE = 16


#: takes num_blocks, block_size and num_swap_blocks
Make = Callable[..., Executor]

_EXECUTORS: dict[str, dict[str, str]] = {
    "cpu": {},
    "cpu-bfloat16": {"quantization": "bfloat16", "kv_dtype": "float32"},
    "torch": {},
}


@pytest.fixture(scope="module", params=_EXECUTORS)
def make(request: pytest.FixtureRequest, smollm2_gguf: Path) -> Make:
    checkpoint = open_checkpoint(smollm2_gguf)
    if request.param == "torch":
        pytest.importorskip("torch")
        from headway.executors.torch import TorchExecutor

        return partial(TorchExecutor, checkpoint)
    pytest.importorskip("headway.kernels._native", reason="the native kernels are not built")
    return partial(CpuExecutor, checkpoint, **_EXECUTORS[request.param])


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


@dataclass(frozen=True)
class Outcome:
    """The tokens of each sequence, and what the scheduler did on the way."""

    tokens: dict[tuple[str, int], list[int]]
    statistics: Statistics


def run(make: Make, work: Iterable[Request], *, num_blocks: int, **limits: Any) -> Outcome:
    """Submit all of the work at once and run it to its end."""
    values = {"max_num_seqs": 64, "max_num_batched_tokens": 512, **limits}
    config = SchedulerConfig(
        limits=SchedulerLimits(
            num_blocks=num_blocks, block_size=BLOCK_SIZE, max_model_len=512, **values
        )
    )
    executor = make(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        num_swap_blocks=config.limits.num_swap_blocks,
    )
    scheduler = Scheduler(config)
    engine = Engine(scheduler, executor, RealClock())
    tokens: dict[tuple[str, int], list[int]] = {}
    num_requests = num_finished = 0
    for request in work:
        engine.submit(request)
        num_requests += 1
    while not (outcome := engine.step()).is_idle:
        scheduler.check()
        for event in outcome.events:
            if isinstance(event, TokenReady):
                key = (event.request_id, event.index)
                tokens.setdefault(key, []).append(event.token.token_id)
            num_finished += isinstance(event, Finished)
    assert num_finished == num_requests
    statistics = scheduler.statistics()
    assert statistics.num_free_blocks == num_blocks
    assert statistics.num_free_swap_blocks == statistics.num_swap_blocks
    return Outcome(tokens, statistics)


def run_alone(make: Make, work: Iterable[Request]) -> dict[tuple[str, int], list[int]]:
    """Give each request the machine and the whole pool to itself."""
    outcome = run(make, work, num_blocks=400, max_num_seqs=1)
    assert outcome.statistics.num_preemptions == 0
    return outcome.tokens


@pytest.fixture(scope="module")
def alone(make: Make) -> dict[tuple[str, int], list[int]]:
    return run_alone(make, requests(64))


@pytest.mark.parametrize("chunk", [16, 64, None])
def test_64_requests_with_preemption_get_the_tokens_they_get_alone(
    make: Make, alone: dict[tuple[str, int], list[int]], chunk: int | None
) -> None:
    outcome = run(make, requests(64), num_blocks=24, max_prefill_chunk_tokens=chunk)
    num_preemptions = outcome.statistics.num_preemptions
    print(f"chunk {chunk}: {num_preemptions} preemptions")
    assert num_preemptions > 0, "the pool is too large to prove anything"
    assert outcome.tokens == alone


@cache
def family() -> tuple[Request, ...]:
    """Twelve requests whose prompts share beginnings of many lengths; one has three sequences."""
    chance = random.Random(11)
    stem = [chance.randint(100, 40_000) for _ in range(100)]
    work = []
    for number in range(12):
        num_shared = chance.choice([0, 16, 37, 64, 100])
        own = [chance.randint(100, 40_000) for _ in range(chance.choice([1, 5, 16, 30]))]
        sampling = SamplingParams(
            max_tokens=chance.randint(12, 32),
            temperature=0.9 if number % 3 == 2 else 0.0,
            top_p=0.95,
            seed=number,
        )
        work.append(
            Request(
                request_id=RequestId(f"f{number}"),
                prompt_token_ids=tuple(stem[:num_shared] + own),
                sampling=sampling,
                n=3 if number == 5 else 1,
            )
        )
    return tuple(work)


@pytest.fixture(scope="module")
def family_alone(make: Make) -> dict[tuple[str, int], list[int]]:
    return run_alone(make, family())


#: limits of the run, and the count of the statistics that shows that it proves something
_WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "batched": ({"num_blocks": 200}, "num_steps"),
    "chunked": ({"num_blocks": 200, "max_prefill_chunk_tokens": 16}, "num_steps"),
    "preempted by recompute": ({"num_blocks": 16}, "num_preemptions"),
    "preempted by swap": (
        {"num_blocks": 16, "num_swap_blocks": 64, "preemption_mode": PreemptionChoice.SWAP},
        "num_swapped_in_blocks",
    ),
    "from the prefix cache": (
        {"num_blocks": 200, "enable_prefix_sharing": True, "max_num_seqs": 2},
        "num_cached_tokens",
    ),
    "shared, swapped and evicted": (
        {
            "num_blocks": 16,
            "num_swap_blocks": 64,
            "preemption_mode": PreemptionChoice.SWAP,
            "enable_prefix_sharing": True,
            "max_prefill_chunk_tokens": 24,
        },
        "num_swapped_in_blocks",
    ),
    "static": ({"num_blocks": 200, "batching": Batching.STATIC, "max_num_seqs": 5}, "num_steps"),
    "dynamic": ({"num_blocks": 200, "batching": Batching.DYNAMIC, "max_num_seqs": 5}, "num_steps"),
}


@pytest.mark.parametrize("way", _WAYS)
def test_12_requests_get_the_same_tokens_in_every_way(
    make: Make, family_alone: dict[tuple[str, int], list[int]], way: str
) -> None:
    limits, proof = _WAYS[way]
    outcome = run(make, family(), **limits)
    count = getattr(outcome.statistics, proof)
    print(f"{way}: {proof} {count}")
    assert count > 0, "the run was too easy to prove anything"
    assert outcome.tokens == family_alone
