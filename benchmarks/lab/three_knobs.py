"""The three knobs: how batch, waiting time and preemption press on each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise, product

from benchmarks.lab.figure import Doublings, Figure, figure
from benchmarks.lab.machine import BLOCK_SIZE, CHATS, DOCUMENTS, MACHINE, kv_blocks, served
from benchmarks.lab.measures import of_gaps, of_ttfts, p99_tpot_s, recomputed
from benchmarks.lab.page import Claim, Page, Table
from headway.core.limits import Batching
from headway.report.scales import Linear
from headway.report.text import duration, percent

RATE, SECONDS = 1.5, 90.0
WAITS_S = (1.0, 4.0, 8.0)
WAITING_BATCHES = (4, 8, 16, 32)
_ROUNDING_S = 1e-6
NUM_DOCUMENTS = 400
BATCHES = (16, 32, 64, 128)
#: parts of the pool that are kept free, from aggressive to mild
WATERMARKS = (0.0, 0.03)


@dataclass(frozen=True, slots=True)
class Waited:
    """The share of static batches that weren't full when the wait was over, and TTFT p50."""

    timed_out: float
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Preempted:
    """What little memory makes of a batch: as in question 5, with TPOT p99 and the longest gap."""

    preemptions: int
    again: float
    tokens_per_s: float
    tpot_s: float
    longest_s: float


Waits = dict[tuple[int, float], Waited]
Preemptions = dict[tuple[int, float], Preempted]


def experiment() -> Page:
    """Run both, and write the page."""
    waits = {(n, wait_s): _waited(n, wait_s) for n, wait_s in product(WAITING_BATCHES, WAITS_S)}
    preempted = {(n, share): _preempted(n, share) for n, share in product(BATCHES, WATERMARKS)}
    return page(waits, preempted)


def _waited(batch: int, wait_s: float) -> Waited:
    limits = {"max_num_seqs": batch, "max_waiting_time_s": wait_s, "batching": Batching.STATIC}
    result = served(CHATS.poisson(RATE, SECONDS), **limits)
    batches: defaultdict[float | None, list[float]] = defaultdict(list)
    for each in result.requests:
        batches[each.started_at].append(each.queued_s or 0.0)
    late = sum(
        len(queued) < batch and max(queued) > wait_s - _ROUNDING_S for queued in batches.values()
    )
    return Waited(late / len(batches), of_ttfts(result.requests, 0.5))


def _preempted(batch: int, share: float) -> Preempted:
    blocks = kv_blocks() // 4
    limits = {"num_blocks": blocks, "max_num_seqs": batch, "watermark_blocks": int(share * blocks)}
    result = served(DOCUMENTS.at_once(NUM_DOCUMENTS), **limits)
    return Preempted(
        result.statistics.num_preemptions,
        recomputed(result),
        result.output_throughput,
        p99_tpot_s(result),
        of_gaps(result.requests, 1.0),
    )


def page(waits: Waits, preempted: Preemptions) -> Page:
    """Return the page."""
    short, long = WAITS_S[0], WAITS_S[-1]
    few, many = WAITING_BATCHES[0], WAITING_BATCHES[1]
    aggressive, mild = WATERMARKS
    fits, most = BATCHES[1], BATCHES[-1]
    all_fit, greedy, calm = (
        preempted[fits, aggressive],
        preempted[most, aggressive],
        preempted[most, mild],
    )
    return Page(
        name="three-knobs",
        title="The three knobs: how do batch, waiting time and preemption press on each other?",
        setup=f"""
            {MACHINE}. *Waiting*: {RATE:g} requests a second (Poisson) for {SECONDS:g} s, with
            {CHATS}; static batches, which begin when they are full or the wait of the first is
            over. *Preemption*: {NUM_DOCUMENTS} requests at once, with {DOCUMENTS}; continuous
            batches, {kv_blocks() // 4:,} KV blocks of {BLOCK_SIZE}, a quarter of what fits, enough
            for about 35 sequences. Preemption by recompute; an aggressive one keeps nothing free
            when it lets requests start, a mild one {percent(mild)} of the pool (`watermark`).
            2,048 tokens a step; seed 0.
        """,
        results=(_table_of_waits(waits), _table_of_preemptions(preempted), _figure(preempted)),
        notes="""
            Since each knob moves what another one bounds, say first which figure is to be
            protected: [`protect`](../settings.md) sets them, and warns of what contradicts it.
            Each knob alone, on one workload: [what each knob does](../knobs.md).
        """,
        answer=f"""
            The larger the batch, the more often its wait is over before it is full: with a wait of
            {short:g} s it is {percent(waits[few, short].timed_out)} of the batches of {few} and
            {percent(waits[many, short].timed_out)} of those of {many}, and waiting {long:g} s so
            that it fills makes the median TTFT {duration(waits[many, long].ttft_s)} in place of
            {duration(waits[many, short].ttft_s)}. The larger the batch for its memory, the more it
            preempts: {most} slots where {fits} fit compute {percent(greedy.again)} of all
            positions again and give {greedy.tokens_per_s:,.0f} tokens a second in place of
            {all_fit.tokens_per_s:,.0f}, and a mild preemption, which costs nothing where all fit,
            brings back {calm.tokens_per_s:,.0f}.
        """,
        claims=(
            Claim(
                f"whatever the wait, larger batches time out more often, from "
                f"{percent(min(each.timed_out for each in waits.values()))} to "
                f"{percent(max(each.timed_out for each in waits.values()))}",
                all(
                    waits[a, wait_s].timed_out <= waits[b, wait_s].timed_out
                    for wait_s in WAITS_S
                    for a, b in pairwise(WAITING_BATCHES)
                )
                and waits[few, short].timed_out < 0.5 < waits[many, short].timed_out,
            ),
            Claim(
                f"a longer wait fills a batch of {many} and delays it: "
                f"{percent(waits[many, long].timed_out)} time out, and TTFT p50 goes from "
                f"{duration(waits[many, short].ttft_s)} to {duration(waits[many, long].ttft_s)}",
                waits[many, long].timed_out < waits[many, short].timed_out
                and waits[many, long].ttft_s > waits[many, short].ttft_s,
            ),
            Claim(
                f"where all fit, there is no preemption and the watermark changes nothing: "
                f"{all_fit.tokens_per_s:,.0f} and {preempted[fits, mild].tokens_per_s:,.0f} "
                "tokens a second",
                all_fit.preemptions == 0 and all_fit == preempted[fits, mild],
            ),
            Claim(
                f"frequent preemption costs throughput: {greedy.preemptions} give "
                f"{greedy.tokens_per_s:,.0f}, {calm.preemptions} {calm.tokens_per_s:,.0f} and none "
                f"{all_fit.tokens_per_s:,.0f} tokens a second",
                greedy.preemptions > calm.preemptions > 0
                and greedy.tokens_per_s < min(calm.tokens_per_s, all_fit.tokens_per_s),
            ),
        ),
    )


def _table_of_waits(waits: Waits) -> Table:
    times = [f"{wait_s:g} s" for wait_s in WAITS_S]
    return Table(
        "Batch and waiting time: batches that were not full when the wait was over, and TTFT p50:",
        ("batch", *(f"over, {each}" for each in times), *(f"TTFT, {each}" for each in times)),
        tuple(
            (
                f"{batch}",
                *(percent(waits[batch, wait_s].timed_out) for wait_s in WAITS_S),
                *(duration(waits[batch, wait_s].ttft_s) for wait_s in WAITS_S),
            )
            for batch in WAITING_BATCHES
        ),
    )


def _table_of_preemptions(preempted: Preemptions) -> Table:
    names = dict(zip(WATERMARKS, ("aggressive", "mild"), strict=True))
    return Table(
        "Batch and preemption, with memory for about 35 sequences:",
        (
            "batch",
            "preemption",
            "preemptions",
            "computed again",
            "output tokens/s",
            "TPOT p99",
            "longest gap",
        ),
        tuple(
            (
                f"{batch}",
                names[share],
                f"{each.preemptions}",
                percent(each.again),
                f"**{each.tokens_per_s:,.0f}**",
                duration(each.tpot_s),
                duration(each.longest_s),
            )
            for (batch, share), each in preempted.items()
        ),
    )


def _figure(preempted: Preemptions) -> Figure:
    lines = {
        name: [(batch, 100 * preempted[batch, share].again) for batch in BATCHES]
        for share, name in zip(WATERMARKS, ("aggressive", "mild"), strict=True)
    }
    most = 100 * max(each.again for each in preempted.values())
    return figure(
        "again",
        "A batch beyond its memory computes twice",
        (("max_num_seqs", Doublings(BATCHES)), ("positions again, %", Linear(0, 1.1 * most))),
        lines,
    )
