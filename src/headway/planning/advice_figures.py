"""Figures of a workload on a machine that need no simulation: service alone, overlap, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from statistics import fmean, median, pstdev

from headway.core.limits import SchedulerLimits
from headway.profiles.shape import Chunk, StepCost, StepShape
from headway.workload import Arrival


def alone_s(cost: StepCost, arrival: Arrival, budget: int) -> float:
    """Return how long a request takes that has the machine to itself, in seconds.

    The prompt is computed in slices of ``budget`` tokens; each decode is taken to cost what the
    one in the middle of the answer does, which is exact where costs are linear in the context.
    """
    slices = _slices(arrival.prompt_tokens, budget)
    prefill_s = sum(cost.seconds(StepShape(chunks=(each,))) for each in slices)
    context = arrival.prompt_tokens + arrival.output_tokens // 2
    return prefill_s + (arrival.output_tokens - 1) * decode_s(cost, 1, context)


def decode_s(cost: StepCost, num_sequences: int, context: int) -> float:
    """Return how long a step takes that decodes so many sequences of this context."""
    return cost.seconds(StepShape((), num_sequences, num_sequences * context, context, context))


def overlap(arrivals: Sequence[Arrival], services_s: Sequence[float]) -> tuple[float, int]:
    """Return what share of the busy time has two requests or more, and the most at once.

    As if each were served at once, on a machine of its own.
    """
    busy_s = shared_s = last_s = 0.0
    count = most = 0
    for at_s, change in sorted(_changes(arrivals, services_s)):
        busy_s += (at_s - last_s) * (count > 0)
        shared_s += (at_s - last_s) * (count > 1)
        count, last_s = count + change, at_s
        most = max(most, count)
    return (shared_s / busy_s if busy_s else 0.0), most


def memory_share(arrivals: Sequence[Arrival], limits: SchedulerLimits) -> float:
    """Return the share of the KV blocks that the median request has when it ends."""
    lengths = (each.prompt_tokens + each.output_tokens for each in arrivals)
    blocks = [-(-length // limits.block_size) for length in lengths]
    return median(blocks) / limits.num_blocks


def variation(values: Sequence[int]) -> float:
    """Return the coefficient of variation."""
    return pstdev(values) / fmean(values)


def batching_gain(cost: StepCost, num_sequences: int, context: int) -> float:
    """Return how many times the tokens a second of one sequence so many decode together."""
    alone = decode_s(cost, 1, context)
    together = decode_s(cost, num_sequences, context)
    return num_sequences * alone / together if together else float(num_sequences)


def ratio(value: float, base: float) -> float:
    """Return how many times a base a value is; 1 if they are equal, whatever they are."""
    if value == base:
        return 1.0
    return value / base if base else inf


def _slices(length: int, budget: int) -> Iterator[Chunk]:
    for start in range(0, length, budget):
        yield Chunk(start, min(budget, length - start))


def _changes(
    arrivals: Sequence[Arrival], services_s: Sequence[float]
) -> Iterator[tuple[float, int]]:
    for arrival, service_s in zip(arrivals, services_s, strict=True):
        yield arrival.at_s, 1
        yield arrival.at_s + service_s, -1
