"""What a machine can bear: the rate of requests at which it is just busy all the time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.profiles.shape import StepCost
from headway.sim import simulate
from headway.workload import Arrival

Lengths = tuple[int, int]

#: while the batch fills at first and drains at last, less is served
_WARM, _DONE = 0.2, 0.8


def capacity(
    limits: SchedulerLimits, cost: StepCost, pool: Sequence[Lengths], *, num_requests: int = 1000
) -> float:
    """Return the requests a second that are served, first come first served, if all wait at once.

    Args:
        limits: of the scheduler.
        cost: of a step.
        pool: (prompt, output) tokens, of which ``num_requests`` are drawn.
        num_requests: enough to keep the batch full for a while.
    """
    random = Random(0)
    drawn = (random.choice(pool) for _ in range(num_requests))
    crowd = [Arrival(at_s=0.0, prompt_tokens=p, output_tokens=o) for p, o in drawn]
    result = simulate(SchedulerConfig(limits=limits), crowd, cost)
    ends = sorted(each.ended_at for each in result.finished if each.ended_at is not None)
    first, last = int(_WARM * len(ends)), int(_DONE * len(ends))
    return (last - first) / (ends[last] - ends[first])
