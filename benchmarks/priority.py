"""An endless stream of high priority beside a little low priority: how long does the low one wait?

Three settings of the same workload:

- *share*: the high class may hold three quarters of the slots, and wants far more than all;
- *ageing*: no share; the stream leaves the machine almost no time, and the rest is not enough;
- *strict*: the same without ageing, for comparison.

The bound of a low request, on its start and on its first token (see :mod:`benchmarks.bound`):
nobody goes first who comes later than ``ageing_s`` times the levels of priority between it and the
stream (here 1).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from benchmarks.bound import Machine, came_at, first_token_s, largest_parts, waited_s
from benchmarks.command import main
from benchmarks.load import capacity
from benchmarks.table import aligned
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig, SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.scheduler import Scheduler
from headway.metrics.quantiles import quantile
from headway.sim import RequestRecord, SimulationResult, simulate
from headway.workload import Arrival, drawn_from, merged, poisson_arrivals

DURATION_S = 400.0
AGEING_S = 30.0
NEVER_S = 1e9
SHARE = 0.75
HIGH, LOW = "high", "low"

COST = StepCosts(base_s=0.02, prefill_token_s=0.0001, decode_s=0.0005)
LIMITS = SchedulerLimits(
    num_blocks=2000,
    block_size=16,
    max_model_len=1024,
    max_num_seqs=16,
    max_num_batched_tokens=1024,
)
_POOL = [(128 + 8 * number, 40 + (number * 37) % 120) for number in range(48)]


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run the workload; loads are shares of what the machine can bear."""

    max_running_share: float
    ageing_s: float
    high_load: float
    low_load: float


SETTINGS = {
    "share": Setting(SHARE, AGEING_S, high_load=1.5, low_load=0.15),
    "ageing": Setting(1.0, AGEING_S, high_load=0.97, low_load=0.12),
    "strict": Setting(1.0, NEVER_S, high_load=0.97, low_load=0.12),
}


@dataclass(frozen=True, slots=True)
class Waits:
    """What became of the low requests, and what the high ones took.

    Attributes:
        most_high_running: high sequences at once, at any step.
        most_high_allowed: by the share.
        num_low: low requests that came.
        num_low_started: those that ran.
        low_median_s: their wait, until they first ran or the end came.
        low_longest_s: the longest of them.
        largest_part_of_bound: the largest wait as a part of that request's bound.
        first_token_median_s: their wait for the first token, or until the end came.
        first_token_longest_s: the longest of them.
        first_token_part_of_bound: the largest wait as a part of that request's bound.
        num_jumped: pairs in which a high request went first though it came later than allowed.
        high_median_s: wait of the high ones that ran.
    """

    most_high_running: int
    most_high_allowed: int
    num_low: int
    num_low_started: int
    low_median_s: float
    low_longest_s: float
    largest_part_of_bound: float
    first_token_median_s: float
    first_token_longest_s: float
    first_token_part_of_bound: float
    num_jumped: int
    high_median_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The waits by setting."""

    settings: dict[str, Waits]


def demonstrate(seed: int = 1) -> Outcome:
    """Run all settings."""
    most = capacity(LIMITS, COST, _POOL, num_requests=400)
    return Outcome({name: _serve(each, most, seed) for name, each in SETTINGS.items()})


def _serve(setting: Setting, most: float, seed: int) -> Waits:
    high = ServiceClass(name=HIGH, priority=0, max_running_share=setting.max_running_share)
    config = SchedulerConfig(
        limits=LIMITS,
        policy=PolicyConfig(name=PolicyName.PRIORITY, ageing_s=setting.ageing_s),
        classes=(high, ServiceClass(name=LOW, priority=1)),
    )
    watch = _HighRunning()
    arrivals = _arrivals(setting, most, seed)
    result = simulate(config, arrivals, COST, until_s=DURATION_S, watch=watch)
    return _waits(result, setting, watch.most)


class _HighRunning:
    """Sees how many high sequences run at once."""

    def __init__(self) -> None:
        self.most = 0

    def __call__(self, scheduler: Scheduler, now: float) -> None:
        del now
        (high,) = (each for each in scheduler.statistics().classes if each.name == HIGH)
        self.most = max(self.most, high.num_running)


def _arrivals(setting: Setting, most: float, seed: int) -> list[Arrival]:
    def stream(name: str, load: float, random: Random) -> list[Arrival]:
        lengths = drawn_from(_POOL, random)
        drawn = poisson_arrivals(
            load * most, lengths, random, duration_s=DURATION_S, class_name=name
        )
        return [replace(each, max_tokens=256) for each in drawn]

    return merged(
        stream(HIGH, setting.high_load, Random(seed)),
        stream(LOW, setting.low_load, Random(seed + 1)),
    )


def _waits(result: SimulationResult, setting: Setting, most_high_running: int) -> Waits:
    high = [each for each in result.requests if each.arrival.class_name == HIGH]
    low = [each for each in result.requests if each.arrival.class_name == LOW]
    waits = [waited_s(each, result.end_s) for each in low]
    ttfts = [waited_s(each, result.end_s, first_token_s) for each in low]
    parts = largest_parts(low, result, setting.ageing_s, Machine(COST, LIMITS))
    return Waits(
        most_high_running=most_high_running,
        most_high_allowed=int(setting.max_running_share * LIMITS.max_num_seqs),
        num_low=len(low),
        num_low_started=sum(each.started_at is not None for each in low),
        low_median_s=quantile(waits, 0.5),
        low_longest_s=max(waits),
        largest_part_of_bound=parts.start,
        first_token_median_s=quantile(ttfts, 0.5),
        first_token_longest_s=max(ttfts),
        first_token_part_of_bound=parts.first_token,
        num_jumped=sum(_num_jumped(each, high, setting.ageing_s) for each in low),
        high_median_s=quantile([each.queued_s for each in high if each.queued_s is not None], 0.5),
    )


def _num_jumped(low: RequestRecord, high: Sequence[RequestRecord], ageing_s: float) -> int:
    """Count high requests that ran before the low one though they came too late for it."""
    latest = came_at(low) + ageing_s
    before = low.started_at if low.started_at is not None else inf
    return sum(
        came_at(each) > latest and each.started_at is not None and each.started_at < before
        for each in high
    )


def table(outcome: Outcome) -> str:
    """Return one row a setting."""
    head = (
        "setting",
        "high running",
        "allowed",
        "low started",
        "low wait p50",
        "longest",
        "of its bound",
        "first token p50",
        "longest",
        "of its bound",
        "jumped",
        "high wait p50",
    )
    rows = [
        (
            name,
            f"{each.most_high_running}",
            f"{each.most_high_allowed}",
            f"{each.num_low_started} of {each.num_low}",
            f"{each.low_median_s:.1f} s",
            f"{each.low_longest_s:.1f} s",
            f"{each.largest_part_of_bound:.0%}",
            f"{each.first_token_median_s:.1f} s",
            f"{each.first_token_longest_s:.1f} s",
            f"{each.first_token_part_of_bound:.0%}",
            f"{each.num_jumped}",
            f"{each.high_median_s:.1f} s",
        )
        for name, each in outcome.settings.items()
    ]
    return aligned(head, rows)


if __name__ == "__main__":
    sys.exit(main(__doc__, demonstrate, table))
