"""A candidate on simulated days: which targets hold how often, and what the engines were busy with.

A target is one on a quantile: it holds on a day if the class's 99th percentile, say, lies within
the limit. A request that was refused, expired or never ended took for ever; one whose client went
away or stopped reading on purpose isn't judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from headway.metrics.quantiles import quantile
from headway.planning.chance import Chance
from headway.planning.demand import SHARE
from headway.planning.load import Load, load_of
from headway.profiles.interference import Interference, costs_of_engine
from headway.report import Outcome, Record
from headway.report.figures import promised
from headway.sim.as_report import records_of
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import RouterName, make_router
from headway.workload import Targets, Workload

_METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What could be built: so many equal engines behind a router.

    Attributes:
        machine: each of them; its ``sample_every_s`` is how finely KV and slots are looked at.
        instances: how many.
        router: chooses among them.
        interference: how such machines slow down from time to time, where it was measured.
    """

    machine: Machine
    instances: int
    router: RouterName = RouterName.LEAST_LOADED
    interference: Interference | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """One target of a class: the quantile ``share`` of a metric is at most ``limit_s`` seconds."""

    class_name: str
    metric: str
    limit_s: float
    share: float = SHARE

    def holds(self, figure_s: float | None) -> bool:
        """Whether a day with this figure keeps it; one on which nobody of the class came does."""
        return figure_s is None or figure_s <= self.limit_s


@dataclass(frozen=True, slots=True)
class AimResult:
    """What became of a target: the figure of each day in seconds, and how often it held.

    A figure is infinite where too many requests did not end well, and None where nothing was
    measured: nobody came, or no answer had a second token to have a TPOT.
    """

    aim: Aim
    by_day: tuple[float | None, ...]

    @property
    def chance(self) -> Chance:
        """Days on which it held."""
        return Chance(sum(map(self.aim.holds, self.by_day)), len(self.by_day))


@dataclass(frozen=True, slots=True)
class DayResult:
    """One simulated day: its figures by target, and what the engines did."""

    figures_s: Mapping[Aim, float | None]
    load: Load

    @property
    def holds(self) -> bool:
        """Whether all targets were kept."""
        return all(aim.holds(figure_s) for aim, figure_s in self.figures_s.items())


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What came of a trial; ``days`` are in their order."""

    candidate: Candidate
    days: tuple[DayResult, ...]

    @property
    def chance(self) -> Chance:
        """Days on which all targets held."""
        return Chance(sum(day.holds for day in self.days), len(self.days))

    @property
    def aims(self) -> tuple[AimResult, ...]:
        """What became of each target."""
        found = dict.fromkeys(aim for day in self.days for aim in day.figures_s)
        return tuple(
            AimResult(aim, tuple(day.figures_s.get(aim) for day in self.days)) for aim in found
        )

    @property
    def load(self) -> Load:
        """What the engines did on all days."""
        return Load.over([day.load for day in self.days])


def trial(
    candidate: Candidate,
    days: Iterable[Workload],
    *,
    is_enough: Callable[[Chance], bool] = lambda _: False,
) -> TrialResult:
    """Simulate a candidate on days.

    Args:
        candidate: what is tried.
        days: what comes; each has its targets.
        is_enough: asked after each day by the chance so far; the rest is left out if it is.

    Raises:
        UsageError: the router can't serve the classes with so few engines.
        InvariantError: a simulation broke: our bug.
    """
    found: list[DayResult] = []
    num_held = 0
    for number, workload in enumerate(days):
        found.append(simulate_day(candidate, workload, number=number))
        num_held += found[-1].holds
        if is_enough(Chance(num_held, len(found))):
            break
    return TrialResult(candidate, tuple(found))


def simulate_day(candidate: Candidate, workload: Workload, *, number: int = 0) -> DayResult:
    """Simulate one day; its number says where interference begins."""
    limits = candidate.machine.config.limits
    router = make_router(
        candidate.router,
        candidate.instances,
        classes=candidate.machine.config.classes,
        num_kv_tokens=limits.num_blocks * limits.block_size,
    )
    result = simulate_fleet(_machines(candidate, number), router, workload)
    figures_s = dict(_figures_s(result, workload.targets))
    return DayResult(figures_s, load_of(result, limits))


def _machines(candidate: Candidate, number: int) -> list[Machine]:
    machine, count = candidate.machine, candidate.instances
    costs = (
        costs_of_engine(machine.cost, candidate.interference, number * count + index)
        for index in range(count)
    )
    return [replace(machine, cost=cost) for cost in costs]


def _figures_s(
    result: FleetResult, targets: Mapping[str, Targets]
) -> Iterator[tuple[Aim, float | None]]:
    by_class: dict[str, list[Record]] = {}
    for record in records_of(result.requests):
        by_class.setdefault(record.class_name, []).append(record)
    for class_name, records in by_class.items():
        for aim in aims_of(class_name, promised(targets, class_name)):
            yield aim, figure_s(records, aim)


def aims_of(class_name: str, targets: Targets | None) -> Iterator[Aim]:
    """Yield what was promised to a class, one by one."""
    for metric in _METRICS if targets is not None else ():
        limit_s = getattr(targets, f"{metric}_s")
        if limit_s is not None:
            yield Aim(class_name, metric, limit_s)


def figure_s(records: Sequence[Record], aim: Aim) -> float | None:
    """Return the quantile that the aim speaks of, in seconds; None if nothing was measured."""
    judged = [r for r in records if r.outcome is not Outcome.CANCELLED and not r.stalled]
    values = [
        getattr(each, f"{aim.metric}_s") if each.outcome is Outcome.COMPLETED else inf
        for each in judged
    ]
    return quantile_of([value for value in values if value is not None], aim.share)


def quantile_of(values: Sequence[float], share: float) -> float | None:
    """Return a quantile of values some of which may be infinite; None if there are none.

    Where it lies between a finite and an infinite one it is infinite.
    """
    if not values:
        return None
    finite = [value for value in values if value < inf]
    if ceil(share * (len(values) - 1)) >= len(finite):
        return inf
    # the infinite ones lie above the quantile; that there are so many is all that they tell
    return quantile(finite + [max(finite)] * (len(values) - len(finite)), share)
