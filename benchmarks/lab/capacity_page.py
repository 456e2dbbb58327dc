"""Question 6: the latency target comes before the batch in capacity estimation."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.lab.capacity import (
    BATCHES,
    NUM_FULL,
    PEAK_RATE,
    STEP_TOKENS,
    SURPRISE,
    TARGETS,
    WATCHED_S,
    Seen,
    Sizing,
    Targets,
    batch_first,
    full_batches,
    one_of,
    target_first,
)
from benchmarks.lab.figure import Doublings, Figure, figure
from benchmarks.lab.machine import CHATS, MACHINE
from benchmarks.lab.page import Claim, Page, Table, yes
from headway.report.scales import Linear
from headway.report.text import duration


def experiment() -> Page:
    """Run it, and write the page."""
    full = full_batches()
    sized = [target_first(each, full) for each in TARGETS]
    return _page(full, sized, batch_first(full))


def _page(full: dict[int, Seen], sized: list[Sizing], first: tuple[int, int, Seen]) -> Page:
    """Return the page of these figures."""
    batch, count, seen = first
    met = [each.name for each in TARGETS if each.are_met(seen)]
    missed = [each for each in TARGETS if not each.are_met(seen)]
    strict, loose = sized[0], sized[-1]
    rate = SURPRISE * PEAK_RATE
    limited = one_of(strict.instances, strict.batch, rate)
    unlimited = one_of(strict.unlimited, BATCHES[-1], rate)
    return Page(
        name="6-targets-before-the-batch",
        title="6. Why must the latency target come before the batch in capacity estimation?",
        setup=f"""
            {MACHINE}. At peak {PEAK_RATE:g} requests come a second (Poisson), with {CHATS}; seed
            0. {STEP_TOKENS} tokens a step, continuous batches, no hold. *Full* is a batch of so
            many slots with {NUM_FULL} requests at once; the check simulates one of the instances,
            to which the peak is dealt at random, for {WATCHED_S:g} s. The steps are those of
            capacity estimation: targets; the largest batch whose TPOT p99 meets its target when
            full; the sequences that the KV cache holds; the smaller of both; instances by peak
            rate × mean answer ÷ tokens a second; and a check, with one more instance as long as it
            fails.
        """,
        results=(
            _table_of_batches(full),
            _figure(full, sized),
            _table_of_sizings(sized),
            _table_of_batch_first(batch, count, seen),
        ),
        notes=f"""
            The estimate counts tokens and no queue; with few slots requests wait for one, which
            the check finds ({strict.estimate} instances become {strict.instances} for
            {TARGETS[0].name}). A full batch is also the worst case: *without a limit of slots* the
            load alone makes the batch, and {strict.unlimited} instances keep the promise to
            {TARGETS[0].name}, as long as the peak is no higher than was thought. At {rate:g}
            requests a second their TPOT p99 is {duration(unlimited.tpot_s)}; with the limit it is
            {duration(limited.tpot_s)}, and what grows is the queue (TTFT p99
            {duration(limited.ttft_s)}).
        """,
        answer=f"""
            A batch says nothing of whether it is good: the one with most tokens a second ({batch},
            with {count} instances) keeps the promise to {_list(met)} and breaks that to
            {_list([each.name for each in missed])} (TPOT p99 {duration(seen.tpot_s)}), which is
            only seen when it runs. From the target, batch and instances follow before: TPOT within
            {duration(TARGETS[0].tpot_s)} allows {strict.batch} slots and needs {strict.instances}
            instances, within {duration(TARGETS[-1].tpot_s)} it is {loose.batch} and
            {loose.instances}, and each holds when it is checked.
        """,
        claims=(
            Claim(
                f"the batch with most throughput meets some targets and not others: "
                f"{_list(met)}, not {_list([each.name for each in missed])}",
                bool(met and missed),
            ),
            Claim(
                "TPOT p99 grows with the batch: "
                + ", ".join(duration(full[each].tpot_s) for each in BATCHES),
                all(full[a].tpot_s < full[b].tpot_s for a, b in pairwise(BATCHES)),
            ),
            Claim(
                "what follows from each target meets it when it is checked",
                all(t.are_met(s.seen) for t, s in zip(TARGETS, sized, strict=True)),
            ),
            Claim(
                f"estimates by tokens a second are too low where slots are few: "
                f"{strict.estimate} and then {strict.instances} for {TARGETS[0].name}",
                strict.instances > strict.estimate,
            ),
            Claim(
                f"beyond the peak the limit keeps TPOT within its target, and without it it isn't: "
                f"{duration(limited.tpot_s)} and {duration(unlimited.tpot_s)}",
                limited.tpot_s <= TARGETS[0].tpot_s < unlimited.tpot_s,
            ),
            Claim(
                f"a stricter target costs instances: {strict.instances} and {loose.instances}",
                strict.instances > loose.instances,
            ),
        ),
    )


def _list(names: list[str]) -> str:
    return " and ".join(names) if names else "nobody"


def _table_of_batches(full: dict[int, Seen]) -> Table:
    return Table(
        "A full batch, and whose target for further tokens it meets:",
        ("batch", "output tokens/s", "TPOT p99", *(f"{_of(each)}?" for each in TARGETS)),
        tuple(
            (
                f"{batch}",
                f"{seen.tokens_per_s:,.0f}",
                duration(seen.tpot_s),
                *(yes(seen.tpot_s <= each.tpot_s) for each in TARGETS),
            )
            for batch, seen in full.items()
        ),
    )


def _of(targets: Targets) -> str:
    return f"{targets.name}, {duration(targets.tpot_s)}"


def _table_of_sizings(sized: list[Sizing]) -> Table:
    rows = (
        (
            each.name,
            f"{duration(each.ttft_s)}, {duration(each.tpot_s)}",
            f"**{found.batch}**",
            f"{found.by_memory}",
            f"{found.estimate}",
            f"**{found.instances}**",
            f"{found.unlimited}",
            f"{duration(found.seen.ttft_s)}, {duration(found.seen.tpot_s)}",
            yes(each.are_met(found.seen)),
        )
        for each, found in zip(TARGETS, sized, strict=True)
    )
    return Table(
        "Targets first: what follows from each (p99 of TTFT and TPOT):",
        (
            "for",
            "targets",
            "batch",
            "memory holds",
            "instances, estimated",
            "with which it holds",
            "without a limit of slots",
            "seen",
            "met",
        ),
        tuple(rows),
    )


def _table_of_batch_first(batch: int, count: int, seen: Seen) -> Table:
    return Table(
        f"Batch first: {batch}, which has the most tokens a second, and {count} instances by the "
        "same estimate:",
        ("for", "targets", "seen", "met"),
        tuple(
            (
                each.name,
                f"{duration(each.ttft_s)}, {duration(each.tpot_s)}",
                f"{duration(seen.ttft_s)}, {duration(seen.tpot_s)}",
                yes(each.are_met(seen)),
            )
            for each in TARGETS
        ),
    )


def _figure(full: dict[int, Seen], sized: list[Sizing]) -> Figure:
    highest = 1000 * max(each.tpot_s for each in full.values())
    chosen = {
        f"{_of(each)}: {found.batch}": float(found.batch)
        for each, found in zip(TARGETS, sized, strict=True)
    }
    return figure(
        "tpot",
        "Each target allows a batch; no batch names its target",
        (("slots of a full batch", Doublings(BATCHES)), ("TPOT p99, ms", Linear(0, 1.1 * highest))),
        {"TPOT p99": [(batch, 1000 * seen.tpot_s) for batch, seen in full.items()]},
        chosen,
    )
