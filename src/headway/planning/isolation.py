"""One pool that all classes share, against a pool of its own for each class: both simulated.

The instances are the same in number. A pool of its own keeps other classes away from a class, and
idles when its class has no work, whoever queues elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb

from headway.core.classes import ServiceClass
from headway.planning.advice_figures import alone_s
from headway.planning.divisions import Division, divisions_of, name_of
from headway.planning.fleets import MakeMachines, Spread, attained, check_workloads, spread
from headway.planning.isolation_idle import idle_while_waiting
from headway.report import Figures, figures
from headway.sim.as_report import records_of
from headway.sim.fleet import FleetResult, simulate_fleet
from headway.sim.replica import Machine
from headway.sim.routers import ClassIsolated, LeastLoaded, Router
from headway.workload import Targets, Workload


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
    """One pool, and each division into separate ones.

    Attributes:
        num_instances: of each.
        shared: one pool.
        separate: pools for each class.
        num_left_out: divisions that were not simulated.
        judged: one pool and the best separate ones, with other seeds than those by which they are
            the best: of many divisions one may look good by chance. With the same if nothing is
            drawn.
        num_others: seeds of these; 0 if nothing is drawn.
    """

    num_instances: int
    shared: Pools
    separate: tuple[Pools, ...]
    num_left_out: int
    judged: tuple[Pools, Pools]
    num_others: int

    @property
    def num_seeds(self) -> int:
        """How many workloads were served."""
        return len(self.shared.runs)


def isolate(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    instances: int,
    *,
    others: Mapping[int, Workload],
    tell: Callable[[str], None] = lambda _: None,
) -> Isolation:
    """Serve a workload with one pool and with separate ones.

    Args:
        make: makes instances with the classes as configured.
        workloads: by seed.
        instances: how many there are in all.
        others: by other seeds, with which the best is judged; none if nothing is drawn.
        tell: is told what is being simulated.

    Raises:
        ValueError: there is nothing to isolate, or there are too few instances.
    """
    machine = make(1, next(iter(workloads)))[0]
    every = [*workloads.values(), *others.values()]
    check_workloads(every, machine.config)
    work = _work(machine, every)
    _check_instances(instances, work)
    divisions = divisions_of(instances, work)
    serve = partial(_pools, make, instances, list(work), tell)
    shared = serve({}, workloads)
    separate = tuple(serve(each, workloads) for each in divisions)
    best = max(separate, key=_merit)
    judged = shared, best
    if others:
        tell("both with other seeds")
        judged = serve({}, others), serve(best.division, others)
    num_left_out = comb(instances - 1, len(work) - 1) - len(divisions)
    return Isolation(instances, shared, separate, num_left_out, judged, len(others))


def _check_instances(instances: int, work: Mapping[str, float]) -> None:
    if len(work) < 2:
        raise ValueError(
            f"isolation needs a workload with two classes at least, and this one has {len(work)}"
        )
    if instances < len(work):
        raise ValueError(
            f"{len(work)} classes can't have pools of their own on {instances} instances: say "
            f"--replicas {len(work)} or more"
        )


def _merit(pools: Pools) -> tuple[float, float]:
    """Return what makes separate pools better: the class served worst, then all."""
    return pools.worst.mean, pools.of(lambda run: attained(run.overall)).mean


def _work(machine: Machine, workloads: Iterable[Workload]) -> dict[str, float]:
    """Return the seconds that the requests of each class take if each is served alone."""
    budget = machine.config.limits.max_num_batched_tokens
    work: dict[str, float] = {}
    for workload in workloads:
        for each in workload.arrivals:
            took_s = alone_s(machine.cost, each, budget)
            work[each.class_name] = work.get(each.class_name, 0.0) + took_s
    return work


def _pools(
    make: MakeMachines,
    instances: int,
    names: Sequence[str],
    tell: Callable[[str], None],
    division: Division,
    workloads: Mapping[int, Workload],
) -> Pools:
    tell(name_of(division, instances))
    runs = []
    for seed, workload in workloads.items():
        machines, router = _fleet(make(instances, seed), division)
        runs.append(_run(simulate_fleet(machines, router, workload), workload.targets, names))
    return Pools(division, tuple(runs))


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


def _run(result: FleetResult, targets: Mapping[str, Targets], names: Sequence[str]) -> Run:
    records = records_of(result.requests)

    def of(name: str) -> Figures:
        mine = [each for each in records if each.class_name == name]
        return figures(mine, _served_s(result, name), targets)

    return Run(
        overall=figures(records, result.end_s, targets),
        classes={name: of(name) for name in names},
        idle_share=idle_while_waiting(result),
    )


def _served_s(result: FleetResult, class_name: str) -> float:
    """Return when the last request of a class ended: another may take longer in its own pool."""
    mine = (each for each in result.requests if each.arrival.class_name == class_name)
    ends = (result.end_s if each.ended_at is None else each.ended_at for each in mine)
    return max(ends, default=0.0)
