"""Six symptoms that batching is blamed for: each with its cause, off and on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Any

from benchmarks.lab.machine import Stream, a100, config, kv_blocks
from benchmarks.lab.measures import of_gaps, of_ttfts, recomputed
from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.limits import Batching
from headway.report.text import duration, number, percent
from headway.sim import RequestRecord, SimulationResult, simulate
from headway.sim.fleet import simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import RouterName, make_router
from headway.workload import Arrival, Conduct, Workload, merged

CHATS = Stream((100, 500), (50, 250))
DOCUMENTS = Stream((200, 1000), (100, 500))
LITTLE = kv_blocks() // 4


@dataclass(frozen=True, slots=True)
class Figure:
    """A number without the cause and with it, and whether the cause should raise it."""

    name: str
    off: float
    on: float
    shown: Callable[[float], str]
    rises: bool = True

    @property
    def is_seen(self) -> bool:
        """Whether it moves as it should, by 2 % at least."""
        low, high = (self.off, self.on) if self.rises else (self.on, self.off)
        return high > 1.02 * low


@dataclass(frozen=True, slots=True)
class Symptom:
    """What is seen, why, what helps, how it is shown, and the figures."""

    name: str
    cause: str
    cure: str
    setup: str
    figures: tuple[Figure, ...]


def symptoms() -> Iterator[Symptom]:
    """Yield the six, in the order in which they are stated."""
    yield hold()
    yield long_prompts()
    yield recomputing()
    yield long_answers()
    yield coarse_blocks()
    yield left_clients()


def _run(arrivals: Sequence[Arrival], *classes: ServiceClass, **limits: Any) -> SimulationResult:
    return simulate(config(*classes, **limits), arrivals, a100(), sample_every_s=0.25)


def _per_busy_second(result: SimulationResult) -> float:
    return result.num_output_tokens / sum(result.steps.elapsed_s)


def _running(result: SimulationResult) -> float:
    """Sequences at once, on average while others wait."""
    return fmean(each.num_running for each in result.samples if each.num_waiting)


def hold() -> Symptom:
    """Return the first: a hold and preemption buy throughput with the tail."""
    chats = CHATS.poisson(1.5, 90.0)
    soon, later = (
        _run(chats, max_num_seqs=16, batching=Batching.STATIC, max_waiting_time_s=wait_s)
        for wait_s in (0.0, 8.0)
    )
    documents = DOCUMENTS.at_once(400)
    fits, beyond = (
        _run(documents, num_blocks=LITTLE, max_num_seqs=slots, watermark_blocks=52)
        for slots in (24, 64)
    )
    return Symptom(
        "throughput rises, and P99 gets worse",
        "a hold for the batch to fill, and preemption",
        "lower `max_waiting_time_ms`, and fewer slots",
        "Hold: static batches of 16, 1.5 chats a second for 90 s; off is no wait, on is 8 s. "
        "Preemption: 400 documents at once on a quarter of the memory, 3 % of it kept free when "
        "requests start; off is 24 slots, which fit, on is 64.",
        (
            Figure(
                "hold: output tokens per busy second",
                _per_busy_second(soon),
                _per_busy_second(later),
                number,
            ),
            Figure(
                "hold: TTFT p99",
                of_ttfts(soon.requests, 0.99),
                of_ttfts(later.requests, 0.99),
                duration,
            ),
            Figure(
                "preemption: output tokens/s",
                fits.output_throughput,
                beyond.output_throughput,
                number,
            ),
            Figure(
                "preemption: longest gap between two tokens",
                of_gaps(fits.requests, 1.0),
                of_gaps(beyond.requests, 1.0),
                duration,
            ),
        ),
    )


def long_prompts() -> Symptom:
    """Return the second: whole prompts stop everybody."""
    chats, long = CHATS.poisson(4.0, 90.0), Stream((3000, 3500), (50, 100))
    arrivals = merged(chats, long.poisson(0.3, 90.0, seed=1))
    chunked = _run(arrivals, max_num_batched_tokens=512)
    whole = _run(arrivals, max_num_batched_tokens=4096, enable_chunked_prefill=False)

    def short(result: SimulationResult) -> list[RequestRecord]:
        return [each for each in result.requests if each.arrival.prompt_tokens < 1000]

    return Symptom(
        "a long prompt comes, and everybody stalls",
        "prompts are computed whole, in the steps of the decodes",
        "`enable_chunked_prefill`",
        "4 chats a second for 90 s, and 0.3 requests with prompts of 3000 to 3500; off is chunks "
        "within 512 tokens a step, on is no chunks and 4,096. Gaps are those of the chats.",
        (
            Figure(
                "longest gap between two tokens",
                of_gaps(short(chunked), 1.0),
                of_gaps(short(whole), 1.0),
                duration,
            ),
            Figure(
                "ITL p99.9",
                of_gaps(short(chunked), 0.999),
                of_gaps(short(whole), 0.999),
                duration,
            ),
        ),
    )


def recomputing() -> Symptom:
    """Return the third: the machine is busy with what it had computed before."""
    documents = DOCUMENTS.at_once(400)
    fits, beyond = (_run(documents, num_blocks=LITTLE, max_num_seqs=slots) for slots in (32, 128))

    def positions_per_s(result: SimulationResult) -> float:
        return sum(result.steps.num_tokens) / result.end_s

    return Symptom(
        "busy, and throughput does not rise",
        "preempted sequences are computed again",
        "see how often it preempts; fewer slots, a watermark, or swap",
        "400 documents at once on a quarter of the memory, which is busy throughout; off is 32 "
        "slots, which fit, on is 128.",
        (
            Figure(
                "positions computed a second",
                positions_per_s(fits),
                positions_per_s(beyond),
                number,
            ),
            Figure("of them computed before", recomputed(fits), recomputed(beyond), percent),
            Figure(
                "output tokens/s",
                fits.output_throughput,
                beyond.output_throughput,
                number,
                rises=False,
            ),
        ),
    )


def long_answers() -> Symptom:
    """Return the fourth: long answers hold the slots that short ones wait for."""
    short, long = Stream((100, 300), (20, 80)), Stream((100, 300), (1000, 2000))
    quick = short.poisson(4.0, 120.0, class_name="short")
    slow = long.poisson(0.6, 120.0, seed=1, class_name="long")
    arrivals = merged(quick, slow)

    def shown(share: float) -> list[RequestRecord]:
        classes = (ServiceClass(name="short"), ServiceClass(name="long", max_running_share=share))
        result = _run(arrivals, *classes, max_num_seqs=16)
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
        return _run(documents, num_blocks=positions // size, block_size=size, max_num_seqs=256)

    fine, coarse = shown(16), shown(512)
    return Symptom(
        "memory is there, and concurrency stays low",
        "KV blocks that are too large",
        "smaller blocks (`block_size`)",
        f"400 documents at once, {positions:,} positions of KV, 256 slots; off is blocks of 16, on "
        "is blocks of 512.",
        (
            Figure("sequences at once", _running(fine), _running(coarse), number, rises=False),
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
    made = config(max_num_seqs=64)
    told, untold = _fleet(made, leaving), _fleet(made, stream)

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


def _fleet(made: SchedulerConfig, arrivals: Sequence[Arrival]) -> SimulationResult:
    machine = Machine(config=made, cost=a100(), sample_every_s=0.25)
    router = make_router(
        RouterName.ROUND_ROBIN,
        1,
        classes=made.classes,
        num_kv_tokens=made.limits.num_kv_tokens,
    )
    (result,) = simulate_fleet([machine], router, Workload(arrivals, (), inf, {})).replicas
    return result
