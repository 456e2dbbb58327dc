"""What a larger batch and what one more instance each buy, at the trough and at the peak of a day.

Both answer the same load: a batch spreads it over time, an instance over machines. Each window is
served by the real scheduler with every setting of a grid around the present one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.planning.advice_figures import alone_s, ratio
from headway.planning.advice_modes import attained_alone
from headway.planning.fleets import (
    PROMISED_SHARE,
    MakeMachines,
    Spread,
    check_workload,
    spread,
)
from headway.planning.trade_run import Measured, full_throughput, measure
from headway.planning.trade_windows import Window, around, windows_of
from headway.sim.replica import Machine
from headway.workload import Workload

#: of the present batch limit
FACTORS = (0.5, 1.0, 2.0, 4.0)
#: beside the present number of instances
MORE = (-1, 0, 1, 2)


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """So many instances, each with so many sequences at once at most."""

    instances: int
    batch_limit: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a setting makes of a window.

    Attributes:
        setting: instances and batch limit.
        full_throughput: output tokens a second of all its instances if requests always queued.
        runs: what was measured with each seed.
    """

    setting: Setting
    full_throughput: float
    runs: tuple[Measured, ...]

    def of(self, name: str) -> Spread:
        """Return a figure of :class:`Measured` over the seeds."""
        return spread(getattr(each, name) for each in self.runs)

    @property
    def headroom(self) -> Spread:
        """The share of what its instances could do that isn't used.

        Not below 0, where answers happen to be longer in a window than on average.
        """
        used = (each.output_throughput / self.full_throughput for each in self.runs)
        return spread(max(1 - each, 0.0) for each in used)


@dataclass(frozen=True, slots=True)
class Gain:
    """What a step from the present setting buys, on average over the seeds.

    Attributes:
        attained: by how much more of the requests keep their targets.
        output_throughput: how many times the output tokens a second.
        p99_ttft: how many times as long the p99 of the time to first token is.
        p99_tpot: likewise, of the time for each further token.
        headroom: by how much more of what the instances could do isn't used.
    """

    attained: float
    output_throughput: float
    p99_ttft: float
    p99_tpot: float
    headroom: float


@dataclass(frozen=True, slots=True)
class Traded:
    """A window with all settings.

    Attributes:
        window: the stretch of time.
        base: the present setting.
        outcomes: by setting, in their order.
        alone: share that keeps its targets if each request is alone, which no setting can surpass;
            None if a setting keeps the promise.
    """

    window: Window
    base: Setting
    outcomes: Mapping[Setting, Outcome]
    alone: float | None

    def gain(self, setting: Setting) -> Gain:
        """Return what another setting buys."""
        old, new = self.outcomes[self.base], self.outcomes[setting]

        def times(name: str) -> float:
            return ratio(new.of(name).mean, old.of(name).mean)

        return Gain(
            attained=new.of("attained").mean - old.of("attained").mean,
            output_throughput=times("output_throughput"),
            p99_ttft=times("p99_ttft_s"),
            p99_tpot=times("p99_tpot_s"),
            headroom=new.headroom.mean - old.headroom.mean,
        )


@dataclass(frozen=True, slots=True)
class Trade:
    """What each setting makes of each window; ``left_out`` says which limits can't be, and why."""

    windows: tuple[Traded, ...]
    left_out: tuple[str, ...]
    num_seeds: int


def trade(
    make: MakeMachines,
    workloads: Mapping[int, Workload],
    instances: int,
    *,
    window_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Trade:
    """Serve trough and peak with every setting of the grid.

    Args:
        make: makes instances with the present batch limit.
        workloads: by seed. The first one says where trough and peak are.
        instances: the present number.
        window_s: length of trough and peak; None is a share of the workload's time.
        tell: is told what is being simulated.

    Raises:
        ValueError: the workload can't be traded; the message says why.
    """
    first_seed, first = next(iter(workloads.items()))
    machine = make(1, first_seed)[0]
    check_workload(first, machine.config)
    windows = windows_of(first.arrivals, window_s)
    limits, left_out = _limits(machine)
    base = Setting(instances, machine.config.limits.max_num_seqs)
    counts = [instances + more for more in MORE if instances + more > 0]
    settings = [Setting(count, limit) for count in counts for limit in limits]
    traded = tuple(_traded(make, workloads, each, base, settings, tell) for each in windows)
    return Trade(traded, left_out, len(workloads))


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
    parts = {seed: around(workload, window) for seed, workload in workloads.items()}
    full = _full_throughputs(make, workloads, window, {each.batch_limit for each in settings})
    outcomes = {}
    for setting in settings:
        tell(f"{window.name}: {setting.instances} x batches of {setting.batch_limit}")
        runs = tuple(
            measure(_fleet(make, setting, seed), part, moved)
            for seed, (part, moved) in parts.items()
        )
        outcomes[setting] = Outcome(setting, setting.instances * full[setting.batch_limit], runs)
    kept = any(each.of("attained").mean >= PROMISED_SHARE for each in outcomes.values())
    return Traded(window, base, outcomes, None if kept else _alone(make, parts))


def _fleet(make: MakeMachines, setting: Setting, seed: int) -> list[Machine]:
    return [with_limit(each, setting.batch_limit) for each in make(setting.instances, seed)]


def _full_throughputs(
    make: MakeMachines, workloads: Mapping[int, Workload], window: Window, limits: Iterable[int]
) -> dict[int, float]:
    """Return what an instance with each limit can do with the requests of a window.

    If none come, with those of the whole workload.
    """
    seed, workload = next(iter(workloads.items()))
    inside = [each for each in workload.arrivals if window.begin_s <= each.at_s < window.end_s]
    mix = inside or workload.arrivals
    return {
        limit: full_throughput(with_limit(make(1, seed)[0], limit), mix, workload)
        for limit in limits
    }


def _alone(make: MakeMachines, parts: Mapping[int, tuple[Workload, Window]]) -> float:
    seed, (part, _) = next(iter(parts.items()))
    machine = make(1, seed)[0]
    budget = machine.config.limits.max_num_batched_tokens
    longest_s = max(alone_s(machine.cost, each, budget) for each in part.arrivals)
    alone = attained_alone(machine, part, longest_s)
    return 1.0 if alone is None else alone
