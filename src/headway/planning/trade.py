"""What a larger batch and what one more instance each buy, at the trough and at the peak of a day.

Both answer the same load: a batch spreads it over time, an instance over machines. Each window is
served by the real scheduler with every setting of a grid around the present one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headway.planning.advice_figures import alone_s
from headway.planning.advice_modes import attained_alone
from headway.planning.fleets import PROMISED_SHARE, MakeMachines, check_workloads, spread
from headway.planning.trade_found import Outcome, Setting, Trade, Traded
from headway.planning.trade_run import Measured, full_throughput, measure
from headway.planning.trade_windows import Window, around, windows_of
from headway.sim.replica import Machine
from headway.workload import Arrival, Workload

#: of the present batch limit
FACTORS = (0.5, 1.0, 2.0, 4.0)
#: beside the present number of instances
MORE = (-1, 0, 1, 2)


def trade(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    instances: int,
    *,
    others: Mapping[int, Workload],
    window_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Trade:
    """Serve trough and peak with every setting of the grid.

    Args:
        make: makes instances with the present batch limit.
        workloads: by seed.
        instances: the present number.
        others: by other seeds, with which the choice is checked; none if nothing is drawn.
        window_s: length of trough and peak; None is a share of the workload's time.
        tell: is told what is being simulated.

    Raises:
        ValueError: the workload can't be traded; the message says why.
    """
    machine = make(1, next(iter(workloads)))[0]
    check_workloads([*workloads.values(), *others.values()], machine.config)
    windows = windows_of([each.arrivals for each in workloads.values()], window_s)
    limits, left_out = _limits(machine)
    base = Setting(instances, machine.config.limits.max_num_seqs)
    counts = [instances + more for more in MORE if instances + more > 0]
    settings = [Setting(count, limit) for count in counts for limit in limits]
    traded = []
    for window in windows:
        found = _traded(make, workloads, window, base, settings, tell)
        traded.append(_checked(make, workloads, others, found, tell))
    return Trade(tuple(traded), left_out, len(workloads), len(others))


def _limits(machine: Machine) -> tuple[list[int], tuple[str, ...]]:
    """Return the batch limits of the grid, and why some of them can't be."""
    present = machine.config.limits.max_num_seqs
    limits: list[int] = []
    left_out = []
    for limit in dict.fromkeys(max(int(present * factor), 1) for factor in FACTORS):
        try:
            with_limit(machine, limit)
        except ValueError as error:
            left_out.append(f"a batch limit of {limit} is left out: {error}")
        else:
            limits.append(limit)
    return limits, tuple(left_out)


def with_limit(machine: Machine, limit: int) -> Machine:
    """Return the machine with another batch limit.

    Raises:
        ValueError: it contradicts another setting.
    """
    limits = replace(machine.config.limits, max_num_seqs=limit)
    return replace(machine, config=replace(machine.config, limits=limits))


def _traded(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    window: Window,
    base: Setting,
    settings: Sequence[Setting],
    tell: Callable[[str], None],
) -> Traded:
    full = _full_throughputs(make, workloads, window, {each.batch_limit for each in settings})
    outcomes = {}
    for setting in settings:
        tell(f"{window.name}: {_in_words(setting)}")
        runs = _runs(make, setting, workloads, window)
        outcomes[setting] = Outcome(setting, setting.instances * full[setting.batch_limit], runs)
    return Traded(window, base, outcomes, checked={}, alone=None)


def _in_words(setting: Setting) -> str:
    return f"{setting.instances} x batches of {setting.batch_limit}"


def _runs(
    make: MakeMachines, setting: Setting, workloads: Mapping[int, Workload], window: Window
) -> tuple[Measured, ...]:
    return tuple(
        measure(_fleet(make, setting, seed), *around(workload, window))
        for seed, workload in workloads.items()
    )


def _checked(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    others: Mapping[int, Workload],
    traded: Traded,
    tell: Callable[[str], None],
) -> Traded:
    """Return it with other seeds for the most welcome setting, until one keeps the promise.

    If none does, what becomes of requests that are alone is added.
    """
    checked: dict[Setting, float] = {}
    for setting in traded.keepers() if others else ():
        tell(f"{traded.window.name}, other seeds: {_in_words(setting)}")
        runs = _runs(make, setting, others, traded.window)
        checked[setting] = spread(each.attained for each in runs).mean
        if checked[setting] >= PROMISED_SHARE:
            break
    found = replace(traded, checked=checked)
    return found if found.keepers() else replace(found, alone=_alone(make, workloads, found.window))


def _fleet(make: MakeMachines, setting: Setting, seed: int) -> list[Machine]:
    return [with_limit(each, setting.batch_limit) for each in make(setting.instances, seed)]


def _full_throughputs(
    make: MakeMachines, workloads: Mapping[int, Workload], window: Window, limits: Iterable[int]
) -> dict[int, float]:
    """Return what an instance with each limit can do with the requests of a window.

    If none come, with those of the whole workload.
    """
    seed, workload = next(iter(workloads.items()))
    mix = _inside(workload, window) or workload.arrivals
    return {
        limit: full_throughput(with_limit(make(1, seed)[0], limit), mix, workload)
        for limit in limits
    }


def _inside(workload: Workload, window: Window) -> list[Arrival]:
    return [each for each in workload.arrivals if window.begin_s <= each.at_s < window.end_s]


def _alone(make: MakeMachines, workloads: Mapping[int, Workload], window: Window) -> float:
    """Return the share that keeps its targets if each request of the window is alone."""
    inside = [each for workload in workloads.values() for each in _inside(workload, window)]
    seed, first = next(iter(workloads.items()))
    machine = make(1, seed)[0]
    budget = machine.config.limits.max_num_batched_tokens
    longest_s = max((alone_s(machine.cost, each, budget) for each in inside), default=0.0)
    alone = attained_alone(machine, replace(first, arrivals=inside), longest_s)
    return 1.0 if alone is None else alone
