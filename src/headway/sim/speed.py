"""How fast a machine is just then, and arrivals that come as fast as it can take them.

Nine tenths of what saturates a machine is more than all of it when the machine becomes a fifth
slower for some seconds, and then a queue grows that has little to do with how requests are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from headway.profiles.features import ObservedStep
from headway.profiles.shape import StepCost

_MEMORY_S = 0.5
_OUTLIER = 3.0
"""What a step took beyond this many times what is expected is a pause, and no speed."""


class MachineSpeed:
    """What the last steps took over what is expected of them.

    Attributes:
        slowness: 1 is the usual speed, 2 half of it.
    """

    def __init__(self, costs: StepCost | None = None) -> None:
        """Begin at the usual speed; without costs it stays there."""
        self.slowness = 1.0
        self._costs = costs
        self._expected_s = self._measured_s = _MEMORY_S
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
        expected_s = self._costs.seconds(step.shape)
        measured_s = min(step.seconds, _OUTLIER * expected_s)
        kept = exp(-measured_s / _MEMORY_S)
        self._expected_s = kept * self._expected_s + expected_s
        self._measured_s = kept * self._measured_s + measured_s
        self.slowness = self._measured_s / self._expected_s


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

    def look(self, now: float) -> None:
        """Take in the present speed, which holds from now on."""
        self._slowness_before = self._slowness
        if self._speed.slowness != self._slowness:
            self._at_s += (now - self._moment) / self._slowness
            self._moment, self._slowness = now, self._speed.slowness

    def moment_of(self, at_s: float) -> float:
        """Return when an arrival comes that none has passed before the last look but one."""
        ahead_s = at_s - self._at_s
        return self._moment + ahead_s * (self._slowness if ahead_s > 0 else self._slowness_before)
