"""``sjf`` against ``fcfs`` on the conversations of an Azure service, at 90 % of what can be served.

Lengths and arrivals are those of the Azure 2023 conversation trace (Patel et al., "Splitwise",
ISCA 2024), in which nothing says how long an answer will be. ``sjf`` with the learned predictor
must find out; with the *oracle* it knows, which is the most that can be had; with the *inverted*
one it takes the longest for the shortest, which is as wrong as it gets.

The bound is put to the test by a *crowd*, for which there is no time: nobody goes before a request
that had come ``ageing_s`` or more before, while all wait far longer than that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.bound import Machine, largest_parts, longest_jump_s, waited_s
from benchmarks.command import main
from benchmarks.load import capacity
from benchmarks.places import trace
from benchmarks.table import aligned
from headway.core.classes import PolicyName
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.predict import OutputLengthPredictor
from headway.metrics.quantiles import quantile, quantiles
from headway.sim import Inverted, Oracle, SimulationResult, simulate
from headway.workload import Arrival, at_rate, read_azure

NUM_REQUESTS = 2000
LOAD = 0.9
CROWD_LOAD = 2.0
AGEING_S = 60.0

COST = StepCosts(base_s=0.02, prefill_token_s=0.00005, decode_s=0.0002)
LIMITS = SchedulerLimits(
    num_blocks=8192,
    block_size=16,
    max_model_len=16_384,
    max_num_seqs=32,
    max_num_batched_tokens=2048,
)

Predictors = dict[str, Callable[[Sequence[Arrival]], OutputLengthPredictor | None]]
PREDICTORS: Predictors = {
    "learned": lambda _: None,
    "oracle": Oracle,
    "inverted": lambda arrivals: Inverted(Oracle(arrivals)),
}


@dataclass(frozen=True, slots=True)
class Latencies:
    """Times in seconds of the requests of one run.

    Attributes:
        mean_s: from arrival to the last token.
        median_s: the same.
        p99_s: the same.
        mean_ttft_s: from arrival to the first token.
        median_ttft_s: the same.
        p999_wait_s: from arrival until it first ran.
        longest_wait_s: the same.
        largest_part_of_bound: the largest wait as a part of that request's bound.
        longest_ttft_s: from arrival to the first token.
        first_token_part_of_bound: the same, as a part of that request's bound.
    """

    mean_s: float
    median_s: float
    p99_s: float
    mean_ttft_s: float
    median_ttft_s: float
    p999_wait_s: float
    longest_wait_s: float
    largest_part_of_bound: float
    longest_ttft_s: float
    first_token_part_of_bound: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """A run at twice the rate that can be served, by the oracle.

    Attributes:
        longest_jump_s: by how much later somebody came than one that it started before, at most.
        longest_wait_s: from arrival until it first ran.
    """

    longest_jump_s: float
    longest_wait_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The latencies by policy and predictor; ``rate`` is requests a second."""

    rate: float
    ageing_s: float
    runs: dict[str, Latencies]
    crowd: Crowd


def demonstrate(num_requests: int = NUM_REQUESTS) -> Outcome:
    """Serve the same requests first come first served, and by ``sjf`` with each predictor."""
    recorded = read_azure(trace("azure2023_conv.csv"))[:num_requests]
    lengths = [(each.prompt_tokens, each.output_tokens) for each in recorded]
    rate = LOAD * capacity(LIMITS, COST, lengths)
    arrivals = at_rate(recorded, rate)
    runs = {"fcfs": _serve(PolicyName.FCFS, arrivals, None)}
    for name, make in PREDICTORS.items():
        runs[f"sjf, {name}"] = _serve(PolicyName.SJF, arrivals, make(arrivals))
    return Outcome(rate, AGEING_S, runs, _crowd(at_rate(recorded, CROWD_LOAD / LOAD * rate)))


def _crowd(arrivals: Sequence[Arrival]) -> Crowd:
    result = simulate(_config(PolicyName.SJF), arrivals, COST, predictor=Oracle(arrivals))
    waits = [waited_s(each, result.end_s) for each in result.requests]
    return Crowd(longest_jump_s(result.requests), max(waits))


def _serve(
    policy: PolicyName, arrivals: Sequence[Arrival], predictor: OutputLengthPredictor | None
) -> Latencies:
    return _latencies(simulate(_config(policy), arrivals, COST, predictor=predictor))


def _config(policy: PolicyName) -> SchedulerConfig:
    return SchedulerConfig(limits=LIMITS, policy=PolicyConfig(name=policy, ageing_s=AGEING_S))


def _latencies(result: SimulationResult) -> Latencies:
    latencies = [each.latency_s for each in result.requests if each.latency_s is not None]
    ttfts = [each.ttft_s for each in result.requests if each.ttft_s is not None]
    if len(latencies) < len(result.requests):
        raise RuntimeError("not all requests ended well")
    waits = [waited_s(each, result.end_s) for each in result.requests]
    parts = largest_parts(result.requests, result, AGEING_S, Machine(COST, LIMITS))
    median_s, p99_s = quantiles(latencies, (0.5, 0.99))
    return Latencies(
        mean_s=sum(latencies) / len(latencies),
        median_s=median_s,
        p99_s=p99_s,
        mean_ttft_s=sum(ttfts) / len(ttfts),
        median_ttft_s=quantile(ttfts, 0.5),
        p999_wait_s=quantile(waits, 0.999),
        longest_wait_s=max(waits),
        largest_part_of_bound=parts.start,
        longest_ttft_s=max(ttfts),
        first_token_part_of_bound=parts.first_token,
    )


def table(outcome: Outcome) -> str:
    """Return one row a run."""
    head = (
        "policy",
        "latency mean",
        "p50",
        "p99",
        "TTFT mean",
        "p50",
        "wait p99.9",
        "longest",
        "of its bound",
        "TTFT longest",
        "of its bound",
    )
    rows = [
        (
            name,
            *(
                f"{value:.2f} s"
                for value in (
                    each.mean_s,
                    each.median_s,
                    each.p99_s,
                    each.mean_ttft_s,
                    each.median_ttft_s,
                    each.p999_wait_s,
                    each.longest_wait_s,
                )
            ),
            f"{each.largest_part_of_bound:.0%}",
            f"{each.longest_ttft_s:.2f} s",
            f"{each.first_token_part_of_bound:.0%}",
        )
        for name, each in outcome.runs.items()
    ]
    rate = f"{outcome.rate:.2f} requests a second, ageing_s = {outcome.ageing_s:.0f}"
    crowd = (
        f"At {CROWD_LOAD:.0f} times what can be served, requests wait up to "
        f"{outcome.crowd.longest_wait_s:.0f} s; nobody started before one that had come more than "
        f"{outcome.crowd.longest_jump_s:.1f} s earlier."
    )
    return f"{rate}\n\n{aligned(head, rows)}\n\n{crowd}"


if __name__ == "__main__":
    sys.exit(main(__doc__, demonstrate, table))
