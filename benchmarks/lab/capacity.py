"""Question 6: what follows from a latency target, and what from a batch, by simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

from benchmarks.lab.concurrency import running_length
from benchmarks.lab.machine import BLOCK_SIZE, CHATS, kv_blocks, served
from benchmarks.lab.measures import of_ttfts, p99_tpot_s
from headway.workload import Arrival

PEAK_RATE = 60.0
#: more than was thought
SURPRISE = 1.25
MEAN_OUTPUT = sum(CHATS.output) / 2
BATCHES = (8, 16, 32, 64, 128, 256)
NUM_FULL, WATCHED_S = 500, 120.0
STEP_TOKENS = 512
#: times the estimate
_TOO_MANY = 4


@dataclass(frozen=True, slots=True)
class Targets:
    """What is promised to 99 in 100 requests, in seconds."""

    name: str
    ttft_s: float
    tpot_s: float

    def are_met(self, seen: Seen) -> bool:
        """Whether a measurement is within both."""
        return seen.ttft_s <= self.ttft_s and seen.tpot_s <= self.tpot_s


TARGETS = (
    Targets("voice", 0.15, 0.015),
    Targets("chat", 0.5, 0.025),
    Targets("offline", 10.0, 0.06),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The p99 of a simulation, in seconds, and its output tokens a second."""

    ttft_s: float
    tpot_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """One way through the steps.

    Attributes:
        batch: of an instance.
        by_memory: sequences that the KV cache holds.
        estimate: instances, by tokens a second.
        instances: with which the check holds.
        seen: of one of them.
        unlimited: instances with which it holds if the load alone makes the batch.
    """

    batch: int
    by_memory: int
    estimate: int
    instances: int
    seen: Seen
    unlimited: int


def full_batches() -> dict[int, Seen]:
    """Measure batches that are full all the time."""
    return {batch: _seen(batch, CHATS.at_once(NUM_FULL)) for batch in BATCHES}


def batch_first(full: dict[int, Seen]) -> tuple[int, int, Seen]:
    """Take the batch with the most tokens a second: batch, instances, and what comes of it."""
    batch = max(BATCHES, key=lambda each: full[each].tokens_per_s)
    count = _instances(full[batch])
    return batch, count, one_of(count, batch)


@cache
def one_of(count: int, batch: int, rate: float = PEAK_RATE) -> Seen:
    """Measure one of so many instances, to which the requests are dealt at random."""
    return _seen(batch, CHATS.poisson(rate / count, WATCHED_S))


def _seen(batch: int, arrivals: list[Arrival]) -> Seen:
    result = served(arrivals, max_num_seqs=batch, max_num_batched_tokens=STEP_TOKENS)
    return Seen(
        of_ttfts(result.requests, 0.99),
        p99_tpot_s(result),
        result.output_throughput,
    )


def _instances(full: Seen) -> int:
    return ceil(PEAK_RATE * MEAN_OUTPUT / full.tokens_per_s)


def _by_memory() -> int:
    return int(kv_blocks() * BLOCK_SIZE / running_length(CHATS.at_once(NUM_FULL)))


def target_first(targets: Targets, full: dict[int, Seen]) -> Sizing:
    """Go through the six steps: targets, batch, memory, the smaller, instances, check."""
    by_target = max(batch for batch in BATCHES if full[batch].tpot_s <= targets.tpot_s)
    by_memory = _by_memory()
    batch = min(by_target, by_memory)
    estimate = _instances(full[by_target])
    instances, seen = _enough(targets, batch, estimate)
    unlimited, _ = _enough(targets, BATCHES[-1], _instances(full[BATCHES[-1]]))
    return Sizing(batch, by_memory, estimate, instances, seen, unlimited)


def _enough(targets: Targets, batch: int, estimate: int) -> tuple[int, Seen]:
    """Add instances until the targets are met, or it is clear that more won't help."""
    for count in range(estimate, _TOO_MANY * estimate):
        if targets.are_met(one_of(count, batch)):
            break
    return count, one_of(count, batch)
