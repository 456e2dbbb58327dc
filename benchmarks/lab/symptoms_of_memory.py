"""Symptoms of slots and memory that are held: long answers, large blocks, clients that left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from statistics import fmean

from benchmarks.lab.machine import (
    DOCUMENTS,
    SAMPLE_EVERY_S,
    Stream,
    a100,
    config,
    kv_blocks,
    served,
)
from benchmarks.lab.measures import of_ttfts, running
from benchmarks.lab.symptom import Figure, Symptom
from headway.core.classes import ServiceClass
from headway.report.text import duration, number, percent
from headway.sim import RequestRecord, SimulationResult
from headway.sim.fleet import simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import RoundRobin
from headway.workload import Arrival, Conduct, Workload, merged


def long_answers() -> Symptom:
    """Return the fourth: long answers hold the slots that short ones wait for."""
    short, long = Stream((100, 300), (20, 80)), Stream((100, 300), (1000, 2000))
    quick = short.poisson(4.0, 120.0, class_name="short")
    slow = long.poisson(0.6, 120.0, seed=1, class_name="long")
    arrivals = merged(quick, slow)

    def shown(share: float) -> list[RequestRecord]:
        classes = (ServiceClass(name="short"), ServiceClass(name="long", max_running_share=share))
        result = served(arrivals, *classes, max_num_seqs=16)
        return [each for each in result.requests if each.arrival.class_name == "short"]

    apart, together = shown(0.5), shown(1.0)
    return Symptom(
        "short requests have spikes at random",
        "long answers hold the slots",
        "queues of their own, with a limit (`max_running_share`), or shorter answers",
        "4 requests a second with answers of 20 to 80 tokens and 0.6 with 1000 to 2000, for 120 s, "
        "16 slots; off is a class for the long ones that may have half of the slots, on is no "
        "limit. Of the short ones:",
        (
            Figure("TTFT p50", of_ttfts(apart, 0.5), of_ttfts(together, 0.5), duration),
            Figure("TTFT p99", of_ttfts(apart, 0.99), of_ttfts(together, 0.99), duration),
        ),
    )


def coarse_blocks() -> Symptom:
    """Return the fifth: memory that large blocks waste."""
    documents = DOCUMENTS.at_once(400)
    positions = kv_blocks() * 16

    def shown(size: int) -> SimulationResult:
        return served(documents, num_blocks=positions // size, block_size=size, max_num_seqs=256)

    fine, coarse = shown(16), shown(512)
    return Symptom(
        "memory is there, and concurrency stays low",
        "KV blocks that are too large",
        "smaller blocks (`block_size`)",
        f"400 documents at once, {positions:,} positions of KV, 256 slots; off is blocks of 16, on "
        "is blocks of 512.",
        (
            Figure("sequences at once", running(fine), running(coarse), number, rises=False),
            Figure(
                "TTFT p50",
                of_ttfts(fine.requests, 0.5),
                of_ttfts(coarse.requests, 0.5),
                duration,
            ),
        ),
    )


def left_clients() -> Symptom:
    """Return the sixth: nobody tells the scheduler that a client has left."""
    patience_s = 2.0
    stream = DOCUMENTS.poisson(5.0, 90.0)
    leaving = [
        replace(each, conduct=Conduct(leaves_after_s=patience_s)) if place % 2 else each
        for place, each in enumerate(stream)
    ]
    told, untold = _with_clients(leaving), _with_clients(stream)

    def for_nobody(result: SimulationResult) -> float:
        """The share of the output tokens that came after their client had left."""
        late = sum(
            moment > each.arrival.at_s + patience_s
            for each in result.requests
            if each.number % 2
            for moment in each.token_times
        )
        return late / result.num_output_tokens

    def in_use(result: SimulationResult) -> float:
        total = result.statistics.num_blocks
        return 1 - fmean(each.num_free_blocks for each in result.samples) / total

    def stays(result: SimulationResult) -> list[RequestRecord]:
        return [each for each in result.requests if each.number % 2 == 0]

    return Symptom(
        "clients leave, and memory stays taken",
        "the cancellation does not get to the scheduler",
        "cancel there, which frees slot and blocks at once",
        f"5 documents a second for 90 s, 64 slots; each second client leaves after {patience_s:g} "
        "s; off is a scheduler that is told, on is one that is not.",
        (
            Figure("KV in use, mean", in_use(told), in_use(untold), percent),
            Figure("output tokens for nobody", for_nobody(told), for_nobody(untold), percent),
            Figure(
                "TTFT p99 of those who stay",
                of_ttfts(stays(told), 0.99),
                of_ttfts(stays(untold), 0.99),
                duration,
            ),
        ),
    )


def _with_clients(arrivals: Sequence[Arrival]) -> SimulationResult:
    """Serve a workload whose clients may leave, which :func:`served` doesn't know."""
    machine = Machine(config=config(), cost=a100(), sample_every_s=SAMPLE_EVERY_S)
    (result,) = simulate_fleet([machine], RoundRobin(1), Workload(arrivals, (), inf, {})).replicas
    return result
