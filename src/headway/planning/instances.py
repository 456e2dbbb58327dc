"""Steps 4 and 5: what one instance can take, and how many of them the peak needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headway.planning.batch import Batch
from headway.planning.demand import Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """Output tokens a second that are needed and had, and the number that follows.

    Attributes:
        peak: needed at the peak.
        mean: needed over the whole day.
        each: had from one instance with a full batch.
        number: instances for the peak.
    """

    peak: float
    mean: float
    each: float
    number: int


def instances_for(demand: Demand, batch: Batch) -> Instances:
    """Return how many instances with such a batch the day needs."""
    peak, mean, each = demand.planned_tokens_per_s, demand.mean_tokens_per_s, batch.tokens_per_s
    return Instances(peak=peak, mean=mean, each=each, number=max(ceil(peak / each), 1))
