"""Two backlogged tenants, one sending twice as much as the other: ``fair`` against ``fcfs``.

The setting of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): 1.5 and 3
requests a second of 256 prompt and 256 output tokens each, on a machine that serves 2 in all.
Service is prompt tokens plus twice the output tokens.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from random import Random

from benchmarks.command import main
from benchmarks.table import aligned
from headway.core.classes import PolicyName
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.sim import SimulationResult, simulate
from headway.workload import Arrival, merged, poisson_arrivals

DURATION_S = 360.0
LIGHT, HEAVY = "light", "heavy"
#: moments at which the table looks at the gap, in seconds
MOMENTS = (60, 120, 180, 240, 300, 360)

#: about an A10G with a model of 7 billion parameters
COST = StepCosts(base_s=0.04, prefill_token_s=0.0002, decode_s=0.0005)
LIMITS = SchedulerLimits(
    num_blocks=1100,
    block_size=16,
    max_model_len=1024,
    max_num_seqs=32,
    max_num_batched_tokens=2048,
)


@dataclass(frozen=True, slots=True)
class Gap:
    """What one policy gave.

    Attributes:
        gap_at: by how much service the heavy tenant was ahead, at each of ``MOMENTS``.
        largest_gap: either way, at any moment.
        tokens_per_s: output tokens of both, a second.
        light_tokens_per_s: those of the light one.
    """

    gap_at: tuple[float, ...]
    largest_gap: float
    tokens_per_s: float
    light_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both policies, and what they come to.

    Attributes:
        times_smaller: the gap of ``fcfs`` after 360 s, over that of ``fair``.
        throughput_ratio: output tokens of ``fair`` over those of ``fcfs``.
    """

    fcfs: Gap
    fair: Gap
    times_smaller: float
    throughput_ratio: float


def arrivals(seed: int) -> list[Arrival]:
    """Return both tenants' requests."""
    lengths = [(256, 256)] * 4000
    return merged(
        poisson_arrivals(1.5, lengths, Random(seed), duration_s=DURATION_S, tenant=LIGHT),
        poisson_arrivals(3.0, lengths, Random(seed + 1), duration_s=DURATION_S, tenant=HEAVY),
    )


def demonstrate(seed: int = 1) -> Outcome:
    """Serve the same requests by both policies."""
    fcfs, fair = (_serve(policy, seed) for policy in (PolicyName.FCFS, PolicyName.FAIR))
    return Outcome(
        fcfs=fcfs,
        fair=fair,
        times_smaller=abs(fcfs.gap_at[-1]) / max(abs(fair.gap_at[-1]), 1.0),
        throughput_ratio=fair.tokens_per_s / fcfs.tokens_per_s,
    )


def _serve(policy: PolicyName, seed: int) -> Gap:
    config = SchedulerConfig(limits=LIMITS, policy=PolicyConfig(name=policy))
    result = simulate(config, arrivals(seed), COST, until_s=DURATION_S)
    gaps = dict(result.service_gap(HEAVY, LIGHT))
    return Gap(
        gap_at=tuple(gaps[float(moment)] for moment in MOMENTS),
        largest_gap=max(map(abs, gaps.values())),
        tokens_per_s=result.output_throughput,
        light_tokens_per_s=_tokens(result, LIGHT) / result.end_s,
    )


def _tokens(result: SimulationResult, tenant: str) -> int:
    mine = (each for each in result.requests if each.arrival.tenant == tenant)
    return sum(len(each.token_times) for each in mine)


def table(outcome: Outcome) -> str:
    """Return the gaps over time, and the two ratios."""
    head = ("policy", *(f"gap at {moment} s" for moment in MOMENTS), "largest", "tokens/s", "light")
    rows = [
        (
            name,
            *(f"{gap:,.0f}" for gap in each.gap_at),
            f"{each.largest_gap:,.0f}",
            f"{each.tokens_per_s:.1f}",
            f"{each.light_tokens_per_s:.1f}",
        )
        for name, each in (("fcfs", outcome.fcfs), ("fair", outcome.fair))
    ]
    return (
        f"{aligned(head, rows)}\n\nAfter {DURATION_S:.0f} s the gap is "
        f"{outcome.times_smaller:.0f} times smaller, at {outcome.throughput_ratio:.1%} of the "
        "throughput."
    )


if __name__ == "__main__":
    sys.exit(main(__doc__, demonstrate, table))
