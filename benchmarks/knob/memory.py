"""Knobs of the KV cache: how much, in which pieces, and what happens when it is full."""

from __future__ import annotations

from benchmarks.knob import measures as m
from benchmarks.knob.scenarios import (
    BACKLOG,
    MANY_SLOTS,
    SCARCE_KV,
    SHARED_PREFIXES,
    limit,
)
from benchmarks.knob.turning import Effect, Knob, Trend
from headway.core.limits import PreemptionChoice

RISES, FALLS = Trend.RISES, Trend.FALLS
_SWAPPING = SCARCE_KV.having("backlog, little KV, `auto`", preemption_mode=PreemptionChoice.AUTO)
_WITH_SWAP_SPACE = SCARCE_KV.having("backlog, little KV, swap space", num_swap_blocks=512)

KNOBS = (
    Knob(
        name="num_blocks",
        values=(512, 768, 1024),
        turn=limit("num_blocks"),
        stated=(
            "The KV cache, not the batch size, bounds how many run. Too little: preemptions become "
            "frequent."
        ),
        effects=(
            Effect(BACKLOG, m.BATCH_SIZE, RISES),
            Effect(BACKLOG, m.THROUGHPUT, RISES),
            Effect(BACKLOG, m.PREEMPTIONS, FALLS),
        ),
    ),
    Knob(
        name="block_size",
        values=(8, 32, 128),
        turn=lambda config, value: limit("block_size")(
            limit("num_blocks")(config, 16_384 // value), value
        ),
        stated=(
            "Small blocks bound what is wasted inside them. Enough memory and few at once: look at "
            "the size of the blocks."
        ),
        effects=(
            Effect(MANY_SLOTS, m.BATCH_SIZE, FALLS),
            Effect(MANY_SLOTS, m.THROUGHPUT, FALLS),
        ),
        note=(
            "The pool holds 16,384 positions each time. With fewer at once the throughput falls "
            "too, but by less than counts as a change here."
        ),
    ),
    Knob(
        name="watermark",
        values=(0, 16, 64),
        shown=("0", "3 %", "12 %"),
        turn=limit("watermark_blocks"),
        stated=(
            "Aggressive preemption (little kept free) keeps throughput; a mild one keeps the "
            "latency of each request. Preempted work is computed again."
        ),
        effects=(
            Effect(SCARCE_KV, m.PREEMPTIONS, FALLS),
            Effect(SCARCE_KV, m.RECOMPUTED, FALLS),
            Effect(SCARCE_KV, m.tpot(0.99), FALLS),
            Effect(SCARCE_KV, m.THROUGHPUT, FALLS),
        ),
        note=(
            "With nothing kept free, so much is computed again that throughput suffers as well, as "
            "is said of frequent preemption; beyond that, what is kept free is missed."
        ),
    ),
    Knob(
        name="preemption_mode",
        values=(PreemptionChoice.RECOMPUTE, PreemptionChoice.SWAP, PreemptionChoice.AUTO),
        turn=limit("preemption_mode"),
        stated=(
            "`recompute` prefills preempted requests again, which costs computing; `swap` moves "
            "blocks out and in, which costs spikes in latency."
        ),
        effects=(
            Effect(_WITH_SWAP_SPACE, m.RECOMPUTED, FALLS),
            Effect(_WITH_SWAP_SPACE, m.SWAPPED, RISES),
            Effect(_WITH_SWAP_SPACE, m.THROUGHPUT, RISES),
            Effect(_WITH_SWAP_SPACE, m.itl(1.0)),
        ),
        note="A block moves in 0.1 ms, and is computed in 1.6 ms, so `auto` swaps.",
    ),
    Knob(
        name="swap_space",
        values=(0, 32, 512),
        shown=("0 blocks", "32", "512"),
        turn=limit("num_swap_blocks"),
        stated="Where preempted requests are parked. When it is full they are computed again.",
        effects=(
            Effect(_SWAPPING, m.SWAPPED, RISES),
            Effect(_SWAPPING, m.RECOMPUTED, FALLS),
        ),
    ),
    Knob(
        name="prefix_sharing",
        values=(False, True),
        shown=("off", "all"),
        turn=limit("enable_prefix_sharing"),
        stated="Equal beginnings share blocks: more requests fit into the same memory.",
        effects=(
            Effect(SHARED_PREFIXES, m.MEAN_KV, FALLS),
            Effect(SHARED_PREFIXES, m.ttft(0.5), FALLS),
            Effect(SHARED_PREFIXES, m.COMPUTED, FALLS),
        ),
    ),
)
