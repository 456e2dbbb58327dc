"""Whether batching is the right tool for a workload on a machine, by figures.

Each of five cases in which it is not has a figure and a limit; the first that applies is the
advice. If none does, the mode that pays is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from headway.planning.advice_figures import (
    alone_s,
    batching_gain,
    memory_share,
    overlap,
    ratio,
    variation,
)
from headway.planning.advice_modes import ModeResult, attained_alone, compare_modes
from headway.sim.replica import Machine
from headway.workload import Workload

#: below this share of the busy time two requests hardly ever meet
SPARSE_SHARE = 0.05
#: from this share of the KV on, no second one of its size fits
GIANT_SHARE = 0.5
#: lengths that vary less are taken for equal
EQUAL_VARIATION = 0.05
#: continuous batching that gains less than this over static isn't worth it
EQUAL_GAIN = 1.05
#: a batch that gains less than this over one request isn't worth it
SATURATED_GAIN = 1.25
_BATCH = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One case, whether it applies, the figure that decides, and what to do instead."""

    case: str
    applies: bool
    figure: str
    instead: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do.

    Attributes:
        verdict: the case that applies first, or the mode that pays.
        advice: what to do, in a sentence.
        findings: the cases, in the order in which they decide; real time if deadlines are hard.
        modes: what each mode makes of the workload.
    """

    verdict: str
    advice: str
    findings: tuple[Finding, ...]
    modes: Mapping[str, ModeResult]


def advise(
    machine: Machine, workload: Workload, make: Callable[[], Machine], *, hard: bool = False
) -> Advice:
    """Decide by figures.

    Args:
        machine: one replica, without slow stretches.
        workload: requests in open loop, with what was promised.
        make: makes the replica with its slow stretches, for a simulation.
        hard: every request has to keep its targets.

    Raises:
        ValueError: the settings don't go with a mode, or the workload has closed loops.
    """
    if workload.loops:
        raise ValueError("advice needs requests in open loop, not a closed one")
    modes = compare_modes(make, workload)
    findings = tuple(_findings(machine, workload, modes, make if hard else None))
    for finding in findings:
        if finding.applies:
            return Advice(finding.case, finding.instead, findings, modes)
    best = best_mode(modes)
    return Advice(best, _praise(best, modes), findings, modes)


def best_mode(modes: Mapping[str, ModeResult]) -> str:
    """Return the mode that keeps most promises, and of several the one with the least latency."""
    return min(modes, key=lambda mode: (-(modes[mode].attained or 0.0), modes[mode].mean_e2el_s))


def _praise(best: str, modes: Mapping[str, ModeResult]) -> str:
    if best == "none":
        return "serve requests one by one: no mode of batching is faster at this load"
    gain = ratio(modes[best].full_throughput, modes["none"].full_throughput)
    return (
        f"use {best} batching: at full load {gain:.1f} times the tokens a second of one request "
        "at a time"
    )


def _findings(
    machine: Machine,
    workload: Workload,
    modes: Mapping[str, ModeResult],
    real_time: Callable[[], Machine] | None,
) -> Iterator[Finding]:
    budget = machine.config.limits.max_num_batched_tokens
    services_s = [alone_s(machine.cost, each, budget) for each in workload.arrivals]
    shared, _ = overlap(workload.arrivals, services_s)
    yield _giant(machine, workload)
    yield _sparse(shared, fmean(services_s))
    if real_time is not None:
        yield _real_time(real_time(), workload, modes, services_s)
    yield _saturated(machine, workload)
    yield _equal(workload, modes)


def _giant(machine: Machine, workload: Workload) -> Finding:
    share = memory_share(workload.arrivals, machine.config.limits)
    return Finding(
        "giant",
        share > GIANT_SHARE,
        f"the median request takes {share:.1%} of the KV (limit {GIANT_SHARE:.0%})",
        "no second request fits beside one: quantise weights or KV, or shard over more devices",
    )


def _sparse(shared: float, service_s: float) -> Finding:
    return Finding(
        "sparse",
        shared < SPARSE_SHARE,
        f"two requests meet in {shared:.1%} of the busy time (limit {SPARSE_SHARE:.0%}); "
        f"one alone takes {service_s:.3g} s",
        "serve requests one by one and don't wait for a batch: nobody would join it",
    )


def _real_time(
    machine: Machine, workload: Workload, modes: Mapping[str, ModeResult], services_s: list[float]
) -> Finding:
    mode = modes["continuous"]
    alone = attained_alone(machine, workload, max(services_s))
    if mode.attained is None or alone is None:
        return Finding("real time", applies=False, figure="nothing was promised", instead="")
    _, most = overlap(workload.arrivals, services_s)
    instances = "an instance of its own" if most == 1 else f"{most} instances"
    advice = f"reserve capacity: {instances}, one request each, so that nobody queues"
    if alone < 1:
        advice += f"; {1 - alone:.1%} miss their deadline even so: a faster machine is needed"
    return Finding(
        "real time",
        mode.attained < alone,
        f"{mode.attained:.1%} keep their deadline in continuous batches, {alone:.1%} alone; the "
        f"longest gap between tokens is {mode.worst_gap_s * 1e3:.3g} ms",
        advice,
    )


def _saturated(machine: Machine, workload: Workload) -> Finding:
    number = min(_BATCH, machine.config.limits.max_num_seqs)
    lengths = (each.prompt_tokens + each.output_tokens // 2 for each in workload.arrivals)
    gain = batching_gain(machine.cost, number, round(fmean(lengths)))
    return Finding(
        "saturated",
        number > 1 and gain < SATURATED_GAIN,
        f"{number} sequences decode {gain:.2f} times the tokens a second of one "
        f"(limit {SATURATED_GAIN:g})",
        "serve requests one by one: one already fills the device",
    )


def _equal(workload: Workload, modes: Mapping[str, ModeResult]) -> Finding:
    vary = max(
        variation([each.prompt_tokens for each in workload.arrivals]),
        variation([each.output_tokens for each in workload.arrivals]),
    )
    static, continuous = modes["static"], modes["continuous"]
    more = ratio(continuous.full_throughput, static.full_throughput)
    less = ratio(static.mean_e2el_s, continuous.mean_e2el_s)
    return Finding(
        "equal",
        vary < EQUAL_VARIATION and max(more, less) < EQUAL_GAIN,
        f"lengths vary by {vary:.1%} (limit {EQUAL_VARIATION:.0%}); continuous over static gains "
        f"{more:.2f} in tokens a second, {less:.2f} in latency (limit {EQUAL_GAIN:g})",
        "static batching is enough",
    )
