"""The engine on this machine as it is judged: two workloads take turns on it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from headway.core.config import SchedulerConfig
from headway.core.ports import Executor
from headway.engine.clock import Clock
from headway.engine.garbage import collection_put_off
from headway.profiles.features import ObservedStep
from headway.profiles.profile import Profile
from headway.profiles.shape import StepCost
from headway.sim.calibration import calibrate, profile_of
from headway.sim.live import LiveEngine, Steps
from headway.sim.records import RequestRecord
from headway.sim.sharing import Stopwatch, half_of, halves, in_turn
from headway.sim.speed import MachineSpeed
from headway.workload import Arrival


class OwnEngine:
    """A real executor, for what is run and what is fitted to, each with half of the blocks.

    Attributes:
        config: of either's scheduler.
    """

    def __init__(
        self,
        executor: Executor,
        config: SchedulerConfig,
        clock: Clock,
        *,
        name: str,
        vocab_size: int,
        longest: int,
    ) -> None:
        """Make both; ``longest`` is of the sequences to calibrate with, in tokens."""
        self.config = replace(config, limits=half_of(config.limits))
        first, second = halves(executor)
        self._name = name
        self._longest = longest
        self._calibrated: tuple[StepCost, Sequence[ObservedStep]] | None = None
        self._clock, self._calibration_clock = Stopwatch(clock), Stopwatch(clock)
        self._run = LiveEngine(self.config, first, self._clock, vocab_size=vocab_size)
        self._calibration = LiveEngine(
            self.config, second, self._calibration_clock, vocab_size=vocab_size, seed=1
        )

    def calibrate(self, most_s: float) -> Profile:
        """Calibrate alone, for about so long."""
        self._calibration_clock.start()
        with collection_put_off():
            found = calibrate(
                self._calibration,
                self.config.limits,
                name=self._name,
                most_s=most_s,
                longest=self._longest,
            )
        self._calibration_clock.stop()
        self._calibrated = found.profile.device, tuple(self._calibration.step_log.steps)
        return found.profile

    def measure(
        self, arrivals: Sequence[Arrival], others: Sequence[Arrival]
    ) -> tuple[Sequence[RequestRecord], Profile]:
        """Run a workload, and in turn with it another one, which the profile is fitted to.

        The steps of the other one tell how fast the machine is, by the last calibration, and so
        how fast requests come: the load remains about what it is meant to be.
        """
        log = self._calibration.step_log.steps
        log.clear()
        speed = MachineSpeed(*self._calibrated or ())
        records, steps = self._run.begin(arrivals, speed)
        fitting = self._again_and_again(others, speed)
        with closing(steps), closing(fitting), collection_put_off():
            in_turn(
                steps,
                self._clock,
                fitting,
                self._calibration_clock,
                between=lambda: speed.follow(log),
            )
        source = f"fitted to {len(log)} steps in between"
        return records, profile_of(log, self._name, source, shapes_mix=True)

    def _again_and_again(self, arrivals: Sequence[Arrival], speed: MachineSpeed) -> Steps:
        while True:
            yield from self._calibration.begin(arrivals, speed)[1]
