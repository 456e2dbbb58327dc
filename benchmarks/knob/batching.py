"""Knobs of the batch: how many, how long, how full, and in which mode."""

from __future__ import annotations

from benchmarks.knob import measures as m
from benchmarks.knob.scenarios import (
    BACKLOG,
    CHATS,
    EQUAL_BACKLOG,
    MIX,
    SPARSE,
    limit,
)
from benchmarks.knob.turning import Effect, Knob, Trend
from headway.core.limits import Batching

RISES, FALLS, STAYS = Trend.RISES, Trend.FALLS, Trend.STAYS
SHORT = m.shorter_than(257)
LONG = m.longer_than(2999)
_STATIC = SPARSE.having("sparse, static batches", batching=Batching.STATIC)

KNOBS = (
    Knob(
        name="max_num_seqs",
        values=(8, 32, 128),
        turn=limit("max_num_seqs"),
        stated=(
            "Up: more throughput, more KV in use. Down: less throughput, each request is faster. "
            "It presses on the KV cache."
        ),
        effects=(
            Effect(BACKLOG, m.THROUGHPUT, RISES),
            Effect(BACKLOG, m.PEAK_KV, RISES),
            Effect(BACKLOG, m.tpot(0.5), RISES),
            Effect(CHATS, m.ttft(0.99)),
        ),
    ),
    Knob(
        name="max_num_batched_tokens",
        values=(128, 512, 2048),
        turn=limit("max_num_batched_tokens"),
        stated=(
            "The token budget of a step. Up: prompts are done sooner, but a long prompt takes the "
            "step and the decodes stand still."
        ),
        effects=(
            Effect(BACKLOG, m.THROUGHPUT, RISES),
            Effect(MIX, m.ttft(0.5, "of long prompts", LONG), FALLS),
            Effect(MIX, m.itl(0.99), RISES),
        ),
    ),
    Knob(
        name="max_waiting_time_ms",
        values=(0.0, 0.1, 1.0),
        shown=("0", "100", "1000"),
        turn=limit("max_waiting_time_s"),
        stated="Up: batches fill more easily, more throughput. Down: lower TTFT.",
        effects=(
            Effect(SPARSE, m.ttft(0.5), RISES),
            Effect(SPARSE, m.ttft(0.99), RISES),
            Effect(SPARSE, m.BATCH_SIZE, RISES),
            Effect(SPARSE, m.PER_BUSY_SECOND, RISES),
            Effect(_STATIC, m.BATCH_SIZE, RISES),
            Effect(_STATIC, m.PER_BUSY_SECOND, RISES),
        ),
    ),
    Knob(
        name="batching",
        values=(Batching.STATIC, Batching.DYNAMIC, Batching.CONTINUOUS),
        turn=limit("batching"),
        stated=(
            "Static: everybody pays for the longest, short requests are dragged along. Dynamic: "
            "1.5 to 2 times the throughput. Continuous: almost always best; of little use when all "
            "lengths are equal."
        ),
        effects=(
            Effect(BACKLOG, m.THROUGHPUT, RISES),
            Effect(BACKLOG, m.latency(0.5, "of short answers", m.with_answers_below(80)), FALLS),
            Effect(CHATS, m.ttft(0.99), FALLS),
            Effect(EQUAL_BACKLOG, m.THROUGHPUT),
        ),
        note=(
            "By how much depends on how different the lengths are. Static batches lose twice: a "
            "slot waits for the longest answer, and prompts for the whole batch to end."
        ),
    ),
    Knob(
        name="enable_chunked_prefill",
        values=(False, True),
        shown=("false", "true"),
        turn=lambda config, value: limit("enable_chunked_prefill")(
            limit("max_num_batched_tokens")(config, 1024 if value else 8192), value
        ),
        stated=(
            "Gives a little TTFT for most of the jitter of TPOT: decodes no longer stand still "
            "while a long prompt is computed. Little gain when all prompts are short."
        ),
        effects=(
            Effect(MIX, m.itl(0.999), FALLS),
            Effect(MIX, m.itl(1.0), FALLS),
            Effect(MIX, m.ttft(0.5, "of long prompts", LONG), RISES),
            Effect(CHATS, m.itl(0.5), STAYS),
        ),
        note=(
            "Without it `max_num_batched_tokens` must hold the longest sequence, so it is 8192 "
            "there, and 1024 with it."
        ),
    ),
    Knob(
        name="max_prefill_chunk_tokens",
        values=(64, 256, 1024),
        turn=limit("max_prefill_chunk_tokens"),
        stated="Smaller chunks: shorter gaps between tokens, a slower first token.",
        effects=(
            Effect(MIX, m.itl(0.99), RISES),
            Effect(MIX, m.ttft(0.5, "of long prompts", LONG), FALLS),
        ),
    ),
    Knob(
        name="max_long_partial_prefills",
        values=(None, 1),
        shown=("any", "1"),
        turn=lambda config, value: limit("max_long_partial_prefills")(
            limit("long_prefill_threshold_tokens")(config, value and 1024), value
        ),
        stated="A channel for quick requests that slow ones can't block.",
        effects=(
            Effect(MIX, m.ttft(0.99, "of short prompts", SHORT), FALLS),
            Effect(MIX, m.ttft(0.5, "of long prompts", LONG)),
        ),
        note="With 1, `long_prefill_threshold_tokens` is 1024; without, none is long.",
    ),
)
