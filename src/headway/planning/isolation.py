"""One pool that all classes share, against a pool of its own for each class: both simulated.

The instances are the same in number. A pool of its own keeps other classes away from a class, and
idles when its class has no work, whoever queues elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import inf

from headway.core.classes import ServiceClass
from headway.planning.advice_figures import alone_s
from headway.planning.fleets import MakeMachines, Spread, check_workload, spread
from headway.planning.isolation_idle import idle_while_waiting
from headway.report import Figures, figures
from headway.sim.as_report import records_of
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import ClassIsolated, LeastLoaded, Router
from headway.workload import Workload

#: ways to divide the instances that are simulated, those nearest to the shares of the work
MOST_DIVISIONS = 12

Division = Mapping[str, int]
"""The number of instances of each class; empty is one pool for all."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one seed gave.

    Attributes:
        overall: of all requests.
        classes: of those of each class.
        idle_share: of the instances' time in which one had nothing to do while a request waited
            at another.
    """

    overall: Figures
    classes: Mapping[str, Figures]
    idle_share: float

    @property
    def worst(self) -> float:
        """The share of requests in time of the class that is served worst."""
        return min(attained(each) for each in self.classes.values())


@dataclass(frozen=True, slots=True)
class Pools:
    """One way to divide the instances, and what it makes of the workload with each seed."""

    division: Division
    runs: tuple[Run, ...]

    def of(self, figure: Callable[[Run], float]) -> Spread:
        """Return a figure over the seeds."""
        return spread(map(figure, self.runs))

    @property
    def worst(self) -> Spread:
        """The share of requests in time of the class that is served worst."""
        return self.of(lambda run: run.worst)


@dataclass(frozen=True, slots=True)
class Isolation:
    """One pool, and each division into separate ones; ``num_left_out`` were not simulated."""

    num_instances: int
    shared: Pools
    separate: tuple[Pools, ...]
    num_left_out: int

    @property
    def num_seeds(self) -> int:
        """How many workloads were served."""
        return len(self.shared.runs)


def attained(each: Figures) -> float:
    """Return the share of requests in time; 1 if there was none to be judged."""
    return 1.0 if each.attained is None else each.attained


def p99_ttft_s(each: Figures) -> float:
    """Return the p99 of the time to first token; infinite if nothing was completed."""
    return each.latencies.ttft.p99 if each.latencies.ttft else inf


def p99_tpot_s(each: Figures) -> float:
    """Return the p99 of the time for each further token; infinite if there was none."""
    return each.latencies.tpot.p99 if each.latencies.tpot else inf


def isolate(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    instances: int,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Isolation:
    """Serve a workload with one pool and with separate ones.

    Args:
        make: makes instances with the classes as configured.
        workloads: by seed.
        instances: how many there are in all.
        tell: is told what is being simulated.

    Raises:
        ValueError: there is nothing to isolate, or there are too few instances.
    """
    first_seed, first = next(iter(workloads.items()))
    machine = make(1, first_seed)[0]
    check_workload(first, machine.config)
    work = _work(machine, first)
    if len(work) < 2:
        raise ValueError(
            f"isolation needs a workload with two classes at least, and this one has {len(work)}"
        )
    if instances < len(work):
        raise ValueError(
            f"{len(work)} classes can't have pools of their own on {instances} instances: say "
            f"--replicas {len(work)} or more"
        )
    divisions = divisions_of(instances, work)
    chosen = divisions[:MOST_DIVISIONS]
    every = [_pools(make, workloads, instances, division, tell) for division in ({}, *chosen)]
    return Isolation(instances, every[0], tuple(every[1:]), len(divisions) - len(chosen))


def _work(machine: Machine, workload: Workload) -> dict[str, float]:
    """Return the seconds that the requests of each class take if each is served alone."""
    budget = machine.config.limits.max_num_batched_tokens
    work: dict[str, float] = {}
    for each in workload.arrivals:
        work[each.class_name] = work.get(each.class_name, 0.0) + alone_s(machine.cost, each, budget)
    return work


def divisions_of(instances: int, work: Mapping[str, float]) -> list[Division]:
    """Return all ways to give each class an instance or more, the nearest to its work first."""
    total = sum(work.values()) or 1.0
    fair = {name: instances * each / total for name, each in work.items()}

    def distance(division: Division) -> float:
        return sum((division[name] - fair[name]) ** 2 for name in fair)

    return sorted(_divisions(instances, list(work)), key=distance)


def _divisions(instances: int, names: Sequence[str]) -> Iterator[Division]:
    for cuts in combinations(range(1, instances), len(names) - 1):
        ends = (0, *cuts, instances)
        yield {name: end - begin for name, (begin, end) in zip(names, pairwise(ends), strict=True)}


def _pools(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    instances: int,
    division: Division,
    tell: Callable[[str], None],
) -> Pools:
    tell(name_of(division, instances))
    runs = []
    for seed, workload in workloads.items():
        machines, router = _fleet(make(instances, seed), division)
        runs.append(_run(simulate_fleet(machines, router, workload), workload))
    return Pools(division, tuple(runs))


def name_of(division: Division, instances: int) -> str:
    """Return what people call a division."""
    if not division:
        return f"one pool of {instances}"
    return ", ".join(f"{name} {number}" for name, number in division.items())


def _fleet(machines: Sequence[Machine], division: Division) -> tuple[list[Machine], Router]:
    if not division:
        return list(machines), LeastLoaded(range(len(machines)))
    left = iter(range(len(machines)))
    groups = {name: [next(left) for _ in range(number)] for name, number in division.items()}
    owner = {number: name for name, group in groups.items() for number in group}
    fleet = [_own(machine, owner[number]) for number, machine in enumerate(machines)]
    return fleet, ClassIsolated(groups)


def _own(machine: Machine, class_name: str) -> Machine:
    """Return the machine for one class alone, whose shares and reservations have no meaning."""
    config = machine.config
    (own,) = (each for each in config.classes if each.name == class_name)
    return replace(machine, config=replace(config, classes=(_whole(own),)))


def _whole(own: ServiceClass) -> ServiceClass:
    return replace(
        own, min_running_share=0.0, max_running_share=1.0, reserved_slots=0, reserved_blocks=0
    )


def _run(result: FleetResult, workload: Workload) -> Run:
    records = records_of(result.requests)
    names = dict.fromkeys(each.class_name for each in workload.arrivals)

    def of(name: str) -> Figures:
        mine = [each for each in records if each.class_name == name]
        return figures(mine, result.end_s, workload.targets)

    return Run(
        overall=figures(records, result.end_s, workload.targets),
        classes={name: of(name) for name in names},
        idle_share=idle_while_waiting(result),
    )
