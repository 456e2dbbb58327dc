"""The arithmetic of a plan in words and numbers, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from headway.planning.arithmetic import Arithmetic
from headway.planning.batch import Batch
from headway.planning.chance import Chance
from headway.planning.choices import counted
from headway.planning.demand import ClassDemand, Demand
from headway.planning.kv import KvMemory

_MS = 1e3
_GB = 1e9


def steps(found: Arithmetic) -> Iterator[str]:
    """Yield the lines of steps 1 to 5, each step under a line of its own."""
    yield "1 targets, and what comes"
    yield from _indented(_targets(found.demand))
    yield "2 the largest batch and the longest wait that keep them"
    yield from _indented(_batch(found))
    yield "3 what the KV memory holds"
    yield from _indented(_memory(found))
    yield "4 the smaller of both"
    yield from _indented(_smaller(found))
    yield "5 instances for the peak"
    yield from _indented(_instances(found))


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return ("  " + line for line in lines)


# ------------------------------------------------------------- 1


def promise(each: ClassDemand) -> str:
    """Say what a class was promised."""
    targets = each.targets
    kinds = ("ttft", "tpot", "e2el")
    said = [
        f"{kind.upper()} p99 {milliseconds(limit_s)}"
        for kind in kinds
        if targets is not None and (limit_s := getattr(targets, f"{kind}_s")) is not None
    ]
    return ", ".join(said) or "keeps up with what comes"


def _targets(demand: Demand) -> Iterator[str]:
    for each in demand.classes:
        yield f"{each.name}: {promise(each)}"
        tenants = f" of {each.num_tenants} tenants" if each.num_tenants > 1 else ""
        yield (
            f"  {counted(each.num_requests, 'request')}{tenants}, {each.rate:.3g}/s, at the peak "
            f"{each.peak_rate:.3g}/s; prompts {each.prompt.mean:.4g} tokens (p99 "
            f"{each.prompt.p99:.4g}), answers {each.output.mean:.4g} (p99 {each.output.p99:.4g})"
        )
    yield (
        f"a day is {demand.duration_s:.4g} s; the peak is the most in {demand.window_s:.3g} s; "
        "what has no target may wait at the peak, so its mean rate counts"
    )
    if demand.shares_prefixes:
        yield "prompts begin alike: the simulation knows that, the arithmetic does not"


# ------------------------------------------------------------- 2


def _batch(found: Arithmetic) -> Iterator[str]:
    bounds, batch, demand = found.bounds, found.by_time, found.demand
    if isfinite(bounds.token_s):
        yield f"a step may take {milliseconds(bounds.token_s)} ({bounds.token_of})"
    else:
        yield "no target bounds the time of a step"
    yield (
        f"{counted(batch.num_seqs, 'sequence')}, holding {batch.context:.4g} tokens each (mean "
        f"{demand.contexts.mean:.4g}, exceeded at 1 moment in 100): a decode takes "
        f"{milliseconds(batch.decode_s)}"
    )
    yield (
        f"{batch.num_seqs} / {demand.output.mean:.4g} of them leave in each step, x "
        f"{demand.prompt.mean:.4g} tokens of prompt = {batch.prefill_tokens:.4g} tokens beside: "
        f"{milliseconds(batch.step_s)} a step"
    )
    room = batch.budget - batch.num_seqs
    if batch.prefill_tokens > max(room, 1):
        yield f"a step has room for {room} of those: the prompts don't keep pace with who leaves"
    yield (
        f"tokens in a step: {batch.budget}, so that a full one takes {milliseconds(batch.full_s)}"
    )
    yield from _wait(batch)


def _wait(batch: Batch) -> Iterator[str]:
    first = batch.first
    if not isfinite(first.limit_s):
        yield "nothing bounds the wait"
        return
    yield (
        f"longest wait = {milliseconds(first.limit_s)} ({first.of}) - "
        f"{milliseconds(batch.prompt_s)} (prompt of {first.prompt:.4g}) - "
        f"{milliseconds(batch.full_s)} (step in progress) = {milliseconds(batch.wait_s)}"
    )
    if batch.wait_s < 0:
        yield "that is none: the plan can only hold while batches are not full"


# ------------------------------------------------------------- 3


def _memory(found: Arithmetic) -> Iterator[str]:
    bound, contexts = found.by_memory, found.demand.contexts
    if found.memory is None:
        yield f"{bound.num_tokens} tokens, as kv.num_blocks and kv.block_size say"
    else:
        yield from _formulas(found.memory, bound.num_ungrouped, bound.held)
        yield f"{bound.num_tokens} tokens in whole blocks, without the watermark"
    yield (
        f"/ {bound.held:.4g} tokens a sequence (and half a block) = {bound.num_mean} sequences "
        f"on average; lengths vary by {contexts.deviation:.4g}: {bound.num_seqs} at 99 moments "
        "in 100"
    )


def _formulas(memory: KvMemory, num_ungrouped: int | None, held: float) -> Iterator[str]:
    size, layers = f"{memory.element_bytes:.4g} bytes", memory.num_layers
    yield f"{memory.kv_bytes / _GB:.4g} GB for keys and values: {memory.said}"
    yield (
        f"without grouped queries a token has 2 x {layers} layers x {memory.hidden_size} hidden x "
        f"{size} = {memory.ungrouped_token_bytes:.6g} bytes: {num_ungrouped} sequences of "
        f"{held:.4g} tokens"
    )
    yield (
        f"with them 2 x {layers} layers x {memory.num_kv_heads} heads x {memory.head_dim} x {size} "
        f"= {memory.token_bytes:.6g} bytes"
    )


# ------------------------------------------------------------- 4, 5


def _smaller(found: Arithmetic) -> Iterator[str]:
    by_time, by_memory = found.by_time.num_seqs, found.by_memory.num_seqs
    what = "time" if by_time <= by_memory else "memory"
    if by_time == found.most <= by_memory:
        what = "neither, but the most sequences that may be tried,"
    yield f"min({by_time} by time, {by_memory} by memory) = {found.chosen.num_seqs}: {what} bounds"
    if what == "memory":
        yield f"a step of those takes {milliseconds(found.chosen.step_s)}"


def _instances(found: Arithmetic) -> Iterator[str]:
    needed = found.instances
    parts = " + ".join(
        f"{each.planned_rate:.3g}/s x {each.output.mean:.4g}" for each in found.demand.classes
    )
    yield f"{parts} = {needed.peak:.4g} output tokens a second"
    token_s = found.chosen.num_seqs / needed.each  # longer than a step where prompts fill it
    yield (
        f"/ {needed.each:.4g} ({found.chosen.num_seqs} in {milliseconds(token_s)}) "
        f"= {needed.peak / needed.each:.3g}: {counted(needed.number, 'instance')}"
    )


def milliseconds(seconds: float) -> str:
    """Return a time as milliseconds, or seconds from 10 on."""
    if not isfinite(seconds):
        return "no bound"
    return f"{seconds:.4g} s" if abs(seconds) >= 10 else f"{seconds * _MS:.4g} ms"


# ------------------------------------------------------------- the rest


def chance_said(chance: Chance) -> str:
    """Say how often something held, and how sure that is."""
    low, high = chance.interval()
    return (
        f"{chance.held} of {chance.of} simulated days ({chance.share:.1%}, 95 % interval "
        f"{low:.1%} to {high:.1%})"
    )


def assumptions(found: Arithmetic, router: str, *, interferes: bool) -> Iterator[str]:
    """Yield what a plan takes for granted.

    Args:
        found: the arithmetic.
        router: between instances.
        interferes: whether the machine slows down from time to time, as far as it is known.
    """
    yield (
        "days are like the one that was given: drawn anew where it is drawn, resampled in pieces "
        "where it was recorded"
    )
    yield "the step costs are true; how true they are, headway fidelity says"
    yield (
        f"a class without targets keeps up if 99 in 100 of its requests are done within a tenth "
        f"of the day, {found.demand.duration_s / 10:.4g} s, or twice what one takes alone"
    )
    if interferes:
        yield "slow stretches of the profile come again in the simulation, not in the arithmetic"
    yield f"instances are alike, behind a router that is {router}"
    yield "the network and the clients take no time"
