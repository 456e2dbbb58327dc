"""Recordings of a known law, so that days that really are new can be drawn: is 95 % 95 %?

Requests come by chance, and every half minute or so a burst of them within a few seconds. From a
recording of so many days a limit is promised, and then days are drawn that have nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.plans.proof import edges, pooled
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.planning.chance import Chance
from headway.planning.days import RecordedDays
from headway.planning.trial import Candidate, trial
from headway.sim.replica import Machine
from headway.workload import Arrival, Targets, Workload

_DAY_S = 100.0
_RATE, _BURST_RATE, _BURST_REQUESTS = 0.5, 1 / 30, 15
_TARGETS = {"default": Targets(ttft_s=1.0, tpot_s=0.05)}  # the edges are what counts
_LIMITS = SchedulerLimits(
    num_blocks=5000,
    block_size=16,
    max_model_len=16_384,
    max_num_seqs=16,
    max_num_batched_tokens=1024,
)
_COST = StepCosts(base_s=0.02, prefill_token_s=0.0003, decode_s=0.0005)
_ENGINE = Candidate(Machine(config=SchedulerConfig(limits=_LIMITS), cost=_COST), 1)


def drawn_day(seed: str, duration_s: float = _DAY_S) -> Workload:
    """Return a day of the law."""
    random = Random(f"law {seed}")
    times = list(_chance(_RATE, duration_s, random))
    for begin_s in _chance(_BURST_RATE, duration_s, random):
        length_s = 2 + 8 * random.random()
        number = 1 + int(random.expovariate(1 / _BURST_REQUESTS))
        times += [begin_s + length_s * random.random() for _ in range(number)]
    arrivals = [
        Arrival(
            at_s=at_s,
            prompt_tokens=1 + int(random.expovariate(1 / 500)),
            output_tokens=1 + int(random.expovariate(1 / 20)),
        )
        for at_s in sorted(times)
        if at_s < duration_s
    ]
    return Workload(arrivals, (), duration_s, _TARGETS)


def _chance(rate: float, duration_s: float, random: Random) -> Iterator[float]:
    at_s = random.expovariate(rate)
    while at_s < duration_s:
        yield at_s
        at_s += random.expovariate(rate)


@dataclass(frozen=True, slots=True)
class Kept:
    """How often limits promised at 95 % held on new days.

    Attributes:
        num_recorded: days in a recording.
        twice: with the recording resampled first, as plans do.
        once: with days drawn from the recording itself.
    """

    num_recorded: int
    twice: Chance
    once: Chance


def kept(
    num_recorded: int, num_recordings: int, num_new: int, num_days: int = 40, promise: float = 0.95
) -> Kept:
    """Promise from each of so many recordings, and look at ``num_new`` new days for each."""
    found: dict[bool, list[Chance]] = {True: [], False: []}
    for number in range(num_recordings):
        recording = drawn_day(f"recording {number}", num_recorded * _DAY_S)
        new = trial(_ENGINE, (drawn_day(f"new {number} {n}") for n in range(num_new)))
        for twice, chances in found.items():
            days = RecordedDays(recording, _DAY_S, twice=twice).draw(num_days, number)
            chances += [
                each.chance
                for each in edges(trial(_ENGINE, days), new, promise)
                if each.metric == "ttft"
            ]
    return Kept(num_recorded, pooled(found[True]), pooled(found[False]))
