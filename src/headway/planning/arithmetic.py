"""Steps 1 to 5 of a plan, one after the other: numbers that need no simulation."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.limits import SchedulerLimits
from headway.planning.batch import (
    MOST_SEQS,
    Batch,
    Bounds,
    batch_of,
    bounds_of,
    largest_batch,
    least_budget,
)
from headway.planning.demand import Demand
from headway.planning.instances import Instances, instances_for
from headway.planning.kv import KvBound, KvMemory, kv_bound
from headway.profiles.shape import StepCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What the arithmetic says.

    Attributes:
        demand: what is asked, with the targets of each class (step 1).
        bounds: the tightest targets.
        by_time: the largest batch that keeps them (step 2).
        memory: where the KV comes from; None if only its size is known.
        by_memory: how many sequences fit into it (step 3).
        chosen: the batch of the smaller of both (step 4).
        instances: how many the peak needs (step 5).
        most: sequences at once that are allowed.
        budget: tokens in a step at most, if that was given.
    """

    demand: Demand
    bounds: Bounds
    by_time: Batch
    memory: KvMemory | None
    by_memory: KvBound
    chosen: Batch
    instances: Instances
    most: int
    budget: int | None

    def batch_of(self, number: int, cost: StepCost, budget: int | None = None) -> Batch:
        """Return the arithmetic of another batch, with a budget of its own if one is given.

        One that is larger than the targets allow keeps the steps as short as the largest that they
        do: it may fill or not.
        """
        budget = self.budget or budget
        if budget is None and number > self.by_time.num_seqs:
            budget = max(self.by_time.budget, least_budget(number))
        return batch_of(number, cost, self.demand, self.bounds, budget)


def work_out(
    demand: Demand,
    cost: StepCost,
    limits: SchedulerLimits,
    memory: KvMemory | None = None,
    most: int = MOST_SEQS,
    budget: int | None = None,
) -> Arithmetic:
    """Do the arithmetic.

    Args:
        demand: what is asked.
        cost: of a step, with the host's time.
        limits: of the scheduler, of which the blocks count here.
        memory: where these come from.
        most: sequences at once at most.
        budget: tokens in a step at most, if that is not to be chosen.
    """
    bounds = bounds_of(cost, demand)
    by_time = largest_batch(cost, demand, bounds, most, budget)
    by_memory = kv_bound(limits, demand.contexts, memory)
    number = min(by_time.num_seqs, by_memory.num_seqs)
    chosen = batch_of(number, cost, demand, bounds, budget)
    return Arithmetic(
        demand=demand,
        bounds=bounds,
        by_time=by_time,
        memory=memory,
        by_memory=by_memory,
        chosen=chosen,
        instances=instances_for(demand, chosen),
        most=most if budget is None else min(most, budget),
        budget=budget,
    )
