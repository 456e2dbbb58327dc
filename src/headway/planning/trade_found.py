"""What came of a trade: each setting at each window, and which of them keep the promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, log2, nan

from headway.planning.advice_figures import ratio
from headway.planning.fleets import PROMISED_SHARE, Spread, spread
from headway.planning.trade_run import Measured
from headway.planning.trade_windows import Window


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

    No number is what was not measured with one of both.

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
        checked: share that keeps its targets with other seeds than those of the outcomes. By these
            a setting is chosen, and of many settings one may look good by chance.
        alone: share that keeps its targets if each request is alone; None if a setting keeps the
            promise.
    """

    window: Window
    base: Setting
    outcomes: Mapping[Setting, Outcome]
    checked: Mapping[Setting, float]
    alone: float | None

    def attained(self, setting: Setting) -> float:
        """Return the share that keeps its targets: with the seeds that it is worse with."""
        outcome = self.outcomes[setting]
        return min(outcome.of("attained").mean, self.checked.get(setting, inf))

    def keepers(self) -> list[Setting]:
        """Return the settings that keep the promise, the most welcome first."""
        keep = [each for each in self.outcomes if self.attained(each) >= PROMISED_SHARE]
        return sorted(keep, key=self.cost)

    def cost(self, setting: Setting) -> tuple[int, float, int]:
        """Return what makes a setting less welcome: instances, and how far its limit is off."""
        distance = abs(log2(setting.batch_limit / self.base.batch_limit))
        return setting.instances, distance, setting.batch_limit

    def gain(self, setting: Setting) -> Gain:
        """Return what another setting buys."""
        old, new = self.outcomes[self.base], self.outcomes[setting]

        def times(name: str) -> float:
            values = new.of(name).mean, old.of(name).mean
            return ratio(*values) if all(map(isfinite, values)) else nan

        return Gain(
            attained=new.of("attained").mean - old.of("attained").mean,
            output_throughput=times("output_throughput"),
            p99_ttft=times("p99_ttft_s"),
            p99_tpot=times("p99_tpot_s"),
            headroom=new.headroom.mean - old.headroom.mean,
        )


@dataclass(frozen=True, slots=True)
class Trade:
    """What each setting makes of each window.

    Attributes:
        windows: trough and peak, or one if the load is steady.
        left_out: which limits can't be, and why.
        num_seeds: with which the settings were served.
        num_others: with which those that keep the promise were checked; 0 if nothing is drawn.
    """

    windows: tuple[Traded, ...]
    left_out: tuple[str, ...]
    num_seeds: int
    num_others: int
