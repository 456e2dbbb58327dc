"""Symptoms of what a step computes, and when: a hold, whole prompts, preempted work."""

from __future__ import annotations

from benchmarks.lab.machine import CHATS, DOCUMENTS, Stream, kv_blocks, served
from benchmarks.lab.measures import of_gaps, of_ttfts, recomputed
from benchmarks.lab.symptom import Figure, Symptom
from headway.core.limits import Batching
from headway.report.text import duration, number, percent
from headway.sim import RequestRecord, SimulationResult
from headway.workload import merged

LITTLE = kv_blocks() // 4


def hold() -> Symptom:
    """Return the first: a hold and preemption buy throughput with the tail."""
    chats = CHATS.poisson(1.5, 90.0)
    soon, later = (
        served(chats, max_num_seqs=16, batching=Batching.STATIC, max_waiting_time_s=wait_s)
        for wait_s in (0.0, 8.0)
    )
    documents = DOCUMENTS.at_once(400)
    fits, beyond = (
        served(documents, num_blocks=LITTLE, max_num_seqs=slots, watermark_blocks=52)
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
    chunked = served(arrivals, max_num_batched_tokens=512)
    whole = served(arrivals, max_num_batched_tokens=4096, enable_chunked_prefill=False)

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
    fits, beyond = (served(documents, num_blocks=LITTLE, max_num_seqs=slots) for slots in (32, 128))

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


def _per_busy_second(result: SimulationResult) -> float:
    return result.num_output_tokens / sum(result.steps.elapsed_s)
