"""Takes many steps at once, as long as each only repeats the one before: the simulator's speed.

What is decided, recorded and written to a journal is the same as step by step.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.plan import SampledToken, SequenceId, Slice, StepPlan, StepResult, TableUpdate
from headway.core.repeat import Repeatable, Repeated
from headway.core.scheduler import Scheduler
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.shape import StepCost, StepShape
from headway.sim.pace import HostTime
from headway.sim.recorder import RecordingExecutor, RepeatedTimes

_new = tuple.__new__  # half the time of the constructor of a named tuple
_FEWEST = 2
"""Fewer steps are as fast in the ordinary way."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A scheduler and a simulated executor with one plan in flight, through quiet stretches."""

    scheduler: Scheduler
    executor: SimulatedExecutor
    cost: StepCost
    host: HostTime | None
    clock: VirtualClock
    recording: RecordingExecutor
    journal: Journal | None

    def advance(self, before_s: float) -> bool:
        """Compute the steps that begin before a moment, until something is to be decided.

        Returns False if the next step is to be planned by itself.
        """
        steps = self.scheduler.repeatable(self.clock.now())
        if steps is None or steps.most < _FEWEST:
            return False
        shape, most = self.executor.look_ahead(steps)
        if most < _FEWEST:
            return False
        now = self.clock.now()
        times = self._times(shape, most, min(before_s, steps.before_s))
        starts = self.executor.next_positions(steps) if self.journal else {}
        token_ids = self.executor.draw_ahead(steps, len(times.ended_s))
        repeated = Repeated(now, times.ended_s, times.elapsed_s, token_ids)
        updates, events = self.scheduler.repeat(repeated)
        self.executor.grow(updates)
        self.clock.sleep_until(times.ended_s[-1])
        if self.journal:
            self._write(self.journal, steps, starts, repeated, updates)
        self.recording.repeated(steps, times, events)
        return True

    def _times(self, shape: StepShape, most: int, before_s: float) -> RepeatedTimes:
        """Return the times of the steps that begin before the moment; the first one does."""
        seconds, host = self.cost.seconds, self.host
        began_s, ended_s, elapsed_s = array("d"), array("d"), array("d")
        _, number, context, longest, shortest, _ = shape
        now = self.clock.now()
        for step in range(most):
            if host is not None:
                now += host(shape)
            elapsed = seconds(shape)
            began_s.append(now)
            elapsed_s.append(elapsed)
            now += elapsed
            ended_s.append(now)
            if now >= before_s:
                break
            ahead = step + 1
            further = ((), number, context + ahead * number, longest + ahead, shortest + ahead, 0)
            shape = _new(StepShape, further)
        return RepeatedTimes(began_s, ended_s, elapsed_s)

    # ---------------------------------------------------------------- the journal

    def _write(
        self,
        journal: Journal,
        steps: Repeatable,
        starts: Mapping[SequenceId, int],
        repeated: Repeated,
        updates: tuple[TableUpdate, ...],
    ) -> None:
        """Write each step as if it had been planned and applied by itself."""
        grown = _by_step(updates, starts, self.scheduler.config.limits.block_size)
        now = repeated.began_s
        for step, ended_s in enumerate(repeated.ended_s):
            plan = StepPlan(
                steps.first_step_id + step,
                tuple(
                    Slice(sequence_id, starts[sequence_id] + step, 1, True)
                    for sequence_id in steps.sequence_ids
                ),
                table_updates=tuple(grown.get(step, ())),
                released=() if step else steps.released,
            )
            tokens = {key: SampledToken(ids[step]) for key, ids in repeated.token_ids.items()}
            result = StepResult(plan.step_id, tokens, elapsed_s=repeated.elapsed_s[step])
            journal.scheduled(plan, now)
            journal.applied(result, ended_s)
            now = ended_s


def _by_step(
    updates: tuple[TableUpdate, ...], starts: Mapping[SequenceId, int], block_size: int
) -> dict[int, list[TableUpdate]]:
    """Divide what a table has grown by among the steps that needed it, a block each."""
    found: dict[int, list[TableUpdate]] = {}
    for update in updates:
        start = starts[update.sequence_id]
        for index, block_id in enumerate(update.block_ids, update.first_index):
            grown = TableUpdate(update.sequence_id, index, (block_id,))
            found.setdefault(index * block_size - start, []).append(grown)
    return found
