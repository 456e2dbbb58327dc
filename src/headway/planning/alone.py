"""What a class gets from a machine that serves nobody else: no plan can do better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.metrics.quantiles import quantile
from headway.planning.advice_figures import alone_s, decode_s
from headway.planning.demand import SHARE, by_class
from headway.profiles.shape import StepCost
from headway.report.figures import promised
from headway.workload import Arrival, Workload

#: so many requests of a class, evenly chosen, stand for all of them
_ENOUGH = 2000


@dataclass(frozen=True, slots=True)
class Unmeetable:
    """A target that even one request at a time would miss; times in seconds."""

    class_name: str
    target: str
    limit_s: float
    best_s: float


def unmeetable(cost: StepCost, workload: Workload) -> list[Unmeetable]:
    """Return the targets that a machine misses which serves one request at a time.

    ``best_s`` is the 99th percentile over the requests of the class, each alone, its prompt
    computed in one step.
    """
    found = []
    for name, target, limit_s, group in _promises(workload):
        alone = [_alone(cost, target, each) for each in group]
        best_s = quantile(alone, SHARE) if alone else 0.0
        if best_s > limit_s:
            found.append(Unmeetable(name, target, limit_s, best_s))
    return found


def _promises(workload: Workload) -> Iterator[tuple[str, str, float, Sequence[Arrival]]]:
    for name, group in by_class(workload).items():
        targets = promised(workload.targets, name)
        for target in ("ttft", "tpot", "e2el") if targets else ():
            limit_s = getattr(targets, f"{target}_s")
            if limit_s is not None:
                yield name, target, limit_s, [e for e in _some(group) if _has(target, e)]


def _some(group: Sequence[Arrival]) -> Sequence[Arrival]:
    return group[:: max(len(group) // _ENOUGH, 1)]


def _has(target: str, arrival: Arrival) -> bool:
    """Whether the request is judged by the target: one token has no time between tokens."""
    return target != "tpot" or arrival.output_tokens > 1


def _alone(cost: StepCost, target: str, arrival: Arrival) -> float:
    whole_s = alone_s(cost, arrival, arrival.prompt_tokens)
    if target == "e2el":
        return whole_s
    context = arrival.prompt_tokens + arrival.output_tokens // 2
    token_s = decode_s(cost, 1, context)
    return token_s if target == "tpot" else whole_s - (arrival.output_tokens - 1) * token_s


def alone_p99(cost: StepCost, group: Sequence[Arrival]) -> float:
    """Return the time from end to end that 99 in 100 requests take alone, in seconds."""
    return quantile([_alone(cost, "e2el", each) for each in _some(group)], SHARE)
