"""``slo`` against ``fcfs`` on long prompts and short chats: more requests that keep every promise.

Both classes have targets for the first token and for each further one. Goodput counts requests a
second that met both. The load is the same for both policies, and so is everything else.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from random import Random

from benchmarks.command import main
from benchmarks.table import aligned
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.sim import ClassReport, report_by_class, simulate
from headway.workload import Arrival, drawn_between, merged, poisson_arrivals

DURATION_S = 300.0
CHAT = ServiceClass(name="chat", ttft_target_s=1.0, tpot_target_s=0.06)
DOCUMENT = ServiceClass(name="document", ttft_target_s=15.0, tpot_target_s=0.2)
CHATS_PER_S, DOCUMENTS_PER_S = 4.0, 0.7

COST = StepCosts(base_s=0.015, prefill_token_s=0.0001, decode_s=0.0003)
LIMITS = SchedulerLimits(
    num_blocks=16_384,
    block_size=16,
    max_model_len=16_384,
    max_num_seqs=64,
    max_num_batched_tokens=8192,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What one policy gave: goodput of all, and the report of each class."""

    goodput: float
    output_tokens_per_s: float
    classes: tuple[ClassReport, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both policies; ``goodput_ratio`` is that of ``slo`` over that of ``fcfs``."""

    fcfs: Policy
    slo: Policy
    goodput_ratio: float


def arrivals(seed: int) -> list[Arrival]:
    """Return chats and documents."""
    chats, documents = Random(seed), Random(seed + 1)
    return merged(
        poisson_arrivals(
            CHATS_PER_S,
            drawn_between((64, 512), (40, 160), chats),
            chats,
            duration_s=DURATION_S,
            class_name=CHAT.name,
        ),
        poisson_arrivals(
            DOCUMENTS_PER_S,
            drawn_between((3000, 8000), (80, 240), documents),
            documents,
            duration_s=DURATION_S,
            class_name=DOCUMENT.name,
        ),
    )


def demonstrate(seed: int = 1) -> Outcome:
    """Serve the same requests by both policies."""
    fcfs, slo = (_serve(policy, seed) for policy in (PolicyName.FCFS, PolicyName.SLO))
    return Outcome(fcfs, slo, slo.goodput / fcfs.goodput)


def _serve(policy: PolicyName, seed: int) -> Policy:
    config = SchedulerConfig(
        limits=LIMITS,
        policy=PolicyConfig(name=policy),
        classes=(CHAT, DOCUMENT),
        costs=StepCosts(),  # far from the truth: the scheduler measures
    )
    result = simulate(config, arrivals(seed), COST)
    classes = report_by_class(result, config.classes)
    return Policy(sum(each.goodput for each in classes), result.output_throughput, classes)


def table(outcome: Outcome) -> str:
    """Return one row a policy and class."""
    head = (
        "policy",
        "class",
        "requests",
        "TTFT p50",
        "TTFT p99",
        "TPOT p99",
        "ITL p99",
        "met targets",
        "goodput",
    )
    rows = [
        (
            name,
            each.name,
            f"{each.num_requests}",
            f"{each.median_ttft_s:.2f} s",
            f"{each.p99_ttft_s:.2f} s",
            f"{each.p99_tpot_s * 1000:.0f} ms",
            f"{each.p99_itl_s * 1000:.0f} ms",
            f"{each.attained:.1%}",
            f"{each.goodput:.2f}/s",
        )
        for name, policy in (("fcfs", outcome.fcfs), ("slo", outcome.slo))
        for each in policy.classes
    ]
    return (
        f"{aligned(head, rows)}\n\nGoodput {outcome.fcfs.goodput:.2f}/s by fcfs, "
        f"{outcome.slo.goodput:.2f}/s by slo: {outcome.goodput_ratio:.2f} times as much, at "
        f"{outcome.slo.output_tokens_per_s / outcome.fcfs.output_tokens_per_s:.1%} of the output "
        "tokens a second."
    )


if __name__ == "__main__":
    sys.exit(main(__doc__, demonstrate, table))
