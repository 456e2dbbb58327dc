"""A plan by the search of ``headway plan``, and its judgement on days that it didn't know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil

from benchmarks.simulation import machine
from headway.planning.arithmetic import Arithmetic, work_out
from headway.planning.batch import Batch
from headway.planning.chance import Chance
from headway.planning.choices import Setup
from headway.planning.days import Days
from headway.planning.demand import demand_of
from headway.planning.search import Search
from headway.planning.trial import AimResult, Candidate, TrialResult, trial
from headway.planning.trials import Terms, Trials
from headway.profiles.builtin import LLAMA_7B
from headway.sim.replica import Machine
from headway.workload import Workload


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan: the setup, and what came of it on the days by which it was made."""

    setup: Setup
    result: TrialResult

    @property
    def candidate(self) -> Candidate:
        """The engines."""
        return self.result.candidate


def planned(
    recording: Workload, days: Days, terms: Terms, tell: Callable[[str], None]
) -> Planned | None:
    """Return the fewest instances that hold, with the batch of the arithmetic; None if none do."""
    base = machine(LLAMA_7B)
    found = work_out(demand_of(recording), base.cost, base.config.limits, most=256)
    trials = Trials(days, terms, lambda batch: machine_of(base, batch), tell=tell)
    choice = Search(trials, [found.chosen], _least(found)).run(found.instances.number)
    return None if choice is None else Planned(choice.setup, choice.result)


def _least(found: Arithmetic) -> int:
    return max(int(found.instances.mean / found.chosen.tokens_per_s), 1)


def machine_of(base: Machine, batch: Batch) -> Machine:
    """Return the 7B model on an A100 with such a batch."""
    limits = replace(
        base.config.limits,
        max_num_seqs=batch.num_seqs,
        max_num_batched_tokens=max(batch.budget, batch.num_seqs),
    )
    return replace(base, config=replace(base.config, limits=limits), sample_every_s=1.0)


@dataclass(frozen=True, slots=True)
class Edge:
    """The tightest limit that a fixed setup could promise of a metric, and how often it held.

    Attributes:
        metric: of which the 99th percentile is meant.
        limit_s: the least that enough of the planning days kept, in seconds.
        chance: of the other days.
    """

    metric: str
    limit_s: float
    chance: Chance


def edges(plan: TrialResult, judge: TrialResult, promise: float) -> list[Edge]:
    """Return the edge of each target.

    The chance that another day is below it is that of :attr:`Chance.of_next`. So a promise at that
    edge is kept as often as it says, if the days of the plan are like those that come.
    """
    return [
        Edge(one.aim.metric, limit_s, _within(other, limit_s))
        for one, other in zip(plan.aims, judge.aims, strict=True)
        if (limit_s := _edge_s(one, promise)) is not None
    ]


def _edge_s(found: AimResult, promise: float) -> float | None:
    figures = sorted(map(_lateness, found.by_day))
    place = ceil(promise * (len(figures) + 1) - 1e-9)
    return figures[place - 1] if place <= len(figures) else None


def _within(found: AimResult, limit_s: float) -> Chance:
    return Chance(sum(_lateness(each) <= limit_s for each in found.by_day), len(found.by_day))


def _lateness(figure_s: float | None) -> float:
    """On a day on which nobody came nobody waited."""
    return 0.0 if figure_s is None else figure_s


def judged(candidate: Candidate, days: Days, count: int, seed: int) -> TrialResult:
    """Return what comes of a candidate on other days."""
    return trial(candidate, islice(days.draw(count, seed), count))


def pooled(chances: Sequence[Chance]) -> Chance:
    """Return the chance of all days together."""
    return Chance(sum(each.held for each in chances), sum(each.of for each in chances))
