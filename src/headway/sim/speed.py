"""How fast a machine is just then, and arrivals that come as fast as it can take them.

Nine tenths of what saturates a machine is more than all of it when the machine becomes a fifth
slower for some seconds, and then a queue grows that has little to do with how requests are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp

from headway.profiles.features import ObservedStep
from headway.profiles.shape import StepCost

_MEMORY_S = 0.5
_OUTLIER = 3.0
"""What a step took beyond this many times what is expected is a pause, and no speed."""


class MachineSpeed:
    """What the last steps took over what is usual for them.

    Attributes:
        slowness: 1 is the usual speed, 2 half of it.
    """

    def __init__(self, costs: StepCost | None = None, usual: Iterable[ObservedStep] = ()) -> None:
        """Begin at the usual speed; without costs it stays there.

        The usual speed is that of the steps that are given, or else what the costs expect.
        """
        self.slowness = 1.0
        self._costs = costs
        self._usual = self._ratio_of(usual)
        self._measured_s = _MEMORY_S
        self._expected_s = _MEMORY_S / self._usual
        self._num_followed = 0

    def follow(self, log: Sequence[ObservedStep]) -> None:
        """Take in the steps of a log that came since the last time."""
        for step in log[self._num_followed :]:
            self.see(step)
        self._num_followed = len(log)

    def see(self, step: ObservedStep) -> None:
        """Take in a step; what was half a second of steps ago has little weight."""
        if self._costs is None:
            return
        measured_s, expected_s = self._times_of(step, self._costs)
        kept = exp(-measured_s / _MEMORY_S)
        self._measured_s = kept * self._measured_s + measured_s
        self._expected_s = kept * self._expected_s + expected_s
        self.slowness = self._measured_s / self._expected_s / self._usual

    def _ratio_of(self, steps: Iterable[ObservedStep]) -> float:
        costs = self._costs
        times = [] if costs is None else [self._times_of(step, costs) for step in steps]
        if not times:
            return 1.0
        return sum(measured_s for measured_s, _ in times) / sum(expected for _, expected in times)

    @staticmethod
    def _times_of(step: ObservedStep, costs: StepCost) -> tuple[float, float]:
        expected_s = costs.seconds(step.shape)
        return min(step.seconds, _OUTLIER * expected_s), expected_s


class Timetable:
    """Moments of arrivals: those of a workload at the usual speed, later on a machine that is slow.

    Args:
        began_s: the moment of 0, on an engine's clock.
        speed: of the machine, as long as it lasts.
    """

    def __init__(self, began_s: float, speed: MachineSpeed) -> None:
        self._speed = speed
        self._slowness = self._slowness_before = speed.slowness
        self._at_s, self._moment = 0.0, began_s
        self._last_moment = began_s

    def look(self, now: float) -> None:
        """Take in the present speed, which holds from now on."""
        self._slowness_before = self._slowness
        if self._speed.slowness != self._slowness:
            self._at_s += (now - self._moment) / self._slowness
            self._moment, self._slowness = now, self._speed.slowness

    def moment_of(self, at_s: float) -> float:
        """Return when the next arrival comes, one that had not come at the last look but one."""
        ahead_s = at_s - self._at_s
        slowness = self._slowness if ahead_s > 0 else self._slowness_before
        return max(self._moment + ahead_s * slowness, self._last_moment)

    def pass_by(self, moment: float) -> None:
        """Note that an arrival came: none comes before it any more, however sums are rounded."""
        self._last_moment = moment
