"""Question 5: the KV cache bounds how many run at once, the batch parameter does not."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.lab.figure import Doublings, Figure, figure
from benchmarks.lab.machine import BLOCK_SIZE, DOCUMENTS, MACHINE, SAMPLE_EVERY_S, kv_blocks, served
from benchmarks.lab.measures import recomputed, running
from benchmarks.lab.page import Claim, Page, Table
from headway.report.scales import Linear
from headway.report.text import percent
from headway.workload import Arrival

NUM_REQUESTS = 300
BATCHES = (16, 32, 64, 128, 256, 512)
#: parts of the memory beside the weights
SHARES = (0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one setting.

    Attributes:
        num_blocks: of the KV cache.
        max_num_seqs: the batch parameter.
        running: sequences that ran at once, on average while others waited.
        preemptions: how many.
        again: the share of the computed positions that had been computed before.
        tokens_per_s: of output.
    """

    num_blocks: int
    max_num_seqs: int
    running: float
    preemptions: int
    again: float
    tokens_per_s: float


def experiment() -> Page:
    """Run it, and write the page."""
    arrivals = DOCUMENTS.at_once(NUM_REQUESTS)
    blocks = [round(share * kv_blocks()) for share in SHARES]
    runs = {(n, most): _run(arrivals, n, most) for n in blocks for most in BATCHES}
    return page(runs, blocks, running_length(arrivals))


def running_length(arrivals: list[Arrival]) -> float:
    """Return the mean length of a sequence that runs: it grows, and long answers run for longer."""
    total = sum(each.output_tokens for each in arrivals)
    lengths = ((each.prompt_tokens + each.output_tokens / 2, each) for each in arrivals)
    return sum(length * each.output_tokens for length, each in lengths) / total


def _run(arrivals: list[Arrival], num_blocks: int, most: int) -> Run:
    result = served(arrivals, num_blocks=num_blocks, max_num_seqs=most)
    return Run(
        num_blocks,
        most,
        running=running(result),
        preemptions=result.statistics.num_preemptions,
        again=recomputed(result),
        tokens_per_s=result.output_throughput,
    )


def page(runs: dict[tuple[int, int], Run], blocks: list[int], length: float) -> Page:
    """Return the page of these runs."""
    most = BATCHES[-1]
    predicted = [BLOCK_SIZE * n / length for n in blocks]
    bound = [runs[n, most] for n in blocks]
    ceiling, whole = predicted[-1], bound[-1]
    half = runs[blocks[-1], most // 2]
    errors = [abs(run.running / number - 1) for run, number in zip(bound, predicted, strict=True)]
    quarter, few = bound[0], runs[blocks[-1], BATCHES[1]]
    return Page(
        name="5-concurrency-and-kv",
        title="5. Why is concurrency bounded by the KV cache, and not by the batch parameter?",
        setup=f"""
            {MACHINE}. {NUM_REQUESTS} requests come at once, with {DOCUMENTS}; seed 0.
            {kv_blocks():,} KV blocks of {BLOCK_SIZE} fit beside the weights; a share of them is
            given to the cache. Counted is how many sequences run at once, on average over the time
            in which others wait (sampled every {SAMPLE_EVERY_S:g} s). Continuous batches, 2,048
            tokens a step, preemption by recompute, no watermark.
        """,
        results=(
            _table(
                "The batch parameter is raised, the memory stays:",
                [runs[blocks[-1], each] for each in BATCHES],
                predicted[-1],
            ),
            _table(
                f"The memory grows, `max_num_seqs` stays at {most}:",
                bound,
                *predicted,
            ),
            _figure(runs, blocks),
        ),
        notes=f"""
            *By the memory* is positions in the cache over {length:.0f}, the mean length of a
            sequence while it runs (prompt and half of the answer, long answers weighing more,
            since they run for longer). *Again* is the share of the computed positions that had
            been computed before a preemption.
        """,
        answer=f"""
            Raised from {most // 2} to {most}, the parameter changes nothing: {whole.running:.0f}
            sequences run in either case, since their keys and values fill the memory
            ({ceiling:.0f} by division), and with a quarter of it {quarter.running:.0f} run. Asking
            for more than fits only costs: with a quarter of the memory, {quarter.preemptions}
            preemptions have {percent(quarter.again)} of all positions computed twice.
        """,
        claims=(
            Claim(
                f"below the bound slots are full: {few.running:.1f} of {few.max_num_seqs}",
                few.running > 0.97 * few.max_num_seqs,
            ),
            Claim(
                f"beyond it the parameter does nothing: {half.running:.1f} and {whole.running:.1f} "
                f"run with {most // 2} and {most}",
                abs(whole.running - half.running) < 0.02 * whole.running,
            ),
            Claim(
                f"the number is memory over length, off by {percent(max(errors))} and at most 10 %",
                max(errors) < 0.1,
            ),
            Claim(
                f"who asks for more than fits pays: {quarter.preemptions} preemptions with a "
                "quarter of the memory, none where all slots fit",
                quarter.preemptions > 0 and runs[blocks[-1], 64].preemptions == 0,
            ),
        ),
    )


def _table(title: str, runs: list[Run], *predicted: float) -> Table:
    by_memory = predicted if len(predicted) > 1 else predicted * len(runs)
    head = ("KV blocks", "`max_num_seqs`", "by the memory", "run at once")
    rows = tuple(
        (
            f"{run.num_blocks:,}",
            f"{run.max_num_seqs}",
            f"{number:.0f}",
            f"**{run.running:.1f}**",
            f"{run.preemptions}",
            f"{percent(run.again)}",
            f"{run.tokens_per_s:,.0f}",
        )
        for run, number in zip(runs, by_memory, strict=True)
    )
    return Table(title, (*head, "preemptions", "again", "output tokens/s"), rows)


def _figure(runs: dict[tuple[int, int], Run], blocks: list[int]) -> Figure:
    lines = {
        f"{100 * share:.0f} % of the memory": [(m, runs[n, m].running) for m in BATCHES]
        for share, n in zip(SHARES, blocks, strict=True)
    }
    most = max(run.running for run in runs.values())
    return figure(
        "running",
        "Each curve ends at its memory, whatever is asked for",
        (("max_num_seqs", Doublings(BATCHES)), ("sequences at once", Linear(0, 1.1 * most))),
        lines,
    )
