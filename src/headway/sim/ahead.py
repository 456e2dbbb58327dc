"""Takes steps without looking at each sequence in them: the simulator's speed.

Those that decode go in lockstep, many steps at once where nothing is to be decided, and beside what
starts, ends or gives way where something is. What is decided, recorded and written to a journal is
the same as step by step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headway.core.plan import (
    Idle,
    SampledToken,
    SequenceId,
    Slice,
    StepPlan,
    StepResult,
    TableUpdate,
)
from headway.core.repeat import Repeatable, Repeated
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence
from headway.engine.clock import VirtualClock
from headway.engine.journal import Journal
from headway.engine.loop import StepOutcome
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.shape import StepCost, StepShape
from headway.sim.pace import HostTime
from headway.sim.recorder import RecordingExecutor, RepeatedTimes

_COMPUTED = StepOutcome(())
_new = tuple.__new__  # half the time of the constructor of a named tuple


@dataclass(frozen=True, slots=True)
class Ahead:
    """A scheduler and a simulated executor with one plan in flight."""

    scheduler: Scheduler
    executor: SimulatedExecutor
    cost: StepCost
    host: HostTime | None
    clock: VirtualClock
    recording: RecordingExecutor
    journal: Journal | None
    #: when each step ended in which some were in lockstep
    _ended_s: array[float] = field(default_factory=lambda: array("d"))

    def __post_init__(self) -> None:
        self.scheduler.work.lockstep.source = self.executor

    def advance(self, before_s: float) -> StepOutcome | None:
        """Compute a step, or those that begin before a moment until something is to be decided.

        Returns None, and has brought all up to date, if the engine is to take the next step. Of
        what came of it the outcome says only whether there was anything to compute.
        """
        scheduler = self.scheduler
        steps = scheduler.repeatable(self.clock.now())
        if steps is not None:
            self._repeat(steps, before_s)
            return _COMPUTED
        if scheduler.repeater.join():
            return self._step()
        self._record()
        return None

    def settle(self) -> None:
        """Bring all sequences and records up to date."""
        self.scheduler.work.lockstep.settle()
        self._record()

    def _record(self) -> None:
        """Write down what those got that have left the lockstep."""
        caught_up = self.scheduler.work.lockstep.caught_up
        if caught_up:
            self.recording.caught_up(caught_up, self._ended_s)
            caught_up.clear()

    # ---------------------------------------------------------------- many steps

    def _repeat(self, steps: Repeatable, before_s: float) -> None:
        """Take steps that only repeat each other."""
        now, lockstep = self.clock.now(), self.scheduler.work.lockstep
        num_members, *positions = lockstep.shape()
        shape = StepShape((), num_members, *positions)
        times = self._times(shape, steps.most, min(before_s, steps.before_s))
        starts = self._starts(self.scheduler.work.decoding.values()) if self.journal else {}
        repeated = Repeated(now, times.ended_s, times.elapsed_s)
        self.executor.forget(steps.released)
        updates, events = self.scheduler.repeat(repeated)
        self._ended_s.extend(times.ended_s)
        self.executor.grow(updates)
        self.clock.sleep_until(times.ended_s[-1])
        if self.journal:
            lockstep.settle()
            self._write(self.journal, steps, starts, repeated, updates)
        self._record()
        self.recording.repeated(steps, num_members, times, events)

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

    # ---------------------------------------------------------------- one step

    def _step(self) -> StepOutcome:
        """Take a step in which something is decided, as the engine's loop would."""
        scheduler, lockstep, now = self.scheduler, self.scheduler.work.lockstep, self.clock.now()
        plan = scheduler.schedule(now)
        self._record()
        if isinstance(plan, Idle):  # all who were decoding have expired, or gave way
            return self._idle(plan, now)
        (step,) = scheduler.work.in_flight.values()
        starts = self._starts(step.in_lockstep) if self.journal else {}
        if self.journal:
            decodes = tuple(Slice(s.sequence_id, start, 1, True) for s, start in starts.items())
            self.journal.scheduled(replace(plan, slices=decodes + plan.slices), now)
        self.recording.events(plan.events, now)
        shape = StepShape.of_plan(plan).beside(*lockstep.shape())
        num_members = len(lockstep.members)
        if self.host is not None:
            self.clock.sleep(self.host(shape))
        result = self.recording.run(plan, shape, num_members)
        ended_s = self.clock.now()
        events = scheduler.apply(result, ended_s)
        if num_members:
            self._ended_s.append(ended_s)
        if self.journal:
            lockstep.settle()
            drawn = {s.sequence_id: SampledToken(s.output_token_ids[-1]) for s in starts}
            self.journal.applied(replace(result, tokens=drawn | {**result.tokens}), ended_s)
        self._record()
        self.recording.events(events, ended_s)
        return _COMPUTED

    def _idle(self, plan: Idle, now: float) -> StepOutcome:
        if self.journal:
            self.journal.scheduled(plan, now)
            self.journal.flush()
        self.recording.events(plan.events, now)
        return StepOutcome((), is_idle=True, wake_at=plan.until)

    # ---------------------------------------------------------------- the journal

    def _starts(self, members: Iterable[Sequence]) -> dict[Sequence, int]:
        """Return the position that the next step computes of each of these in lockstep."""
        num_behind = self.scheduler.work.lockstep.num_behind
        return {s: s.num_scheduled_tokens + num_behind(s) for s in members}

    def _write(
        self,
        journal: Journal,
        steps: Repeatable,
        starts: Mapping[Sequence, int],
        repeated: Repeated,
        updates: tuple[TableUpdate, ...],
    ) -> None:
        """Write each step as if it had been planned and applied by itself."""
        first = {s.sequence_id: start for s, start in starts.items()}
        grown = _by_step(updates, first, self.scheduler.config.limits.block_size)
        now, count = repeated.began_s, len(repeated.ended_s)
        for step, ended_s in enumerate(repeated.ended_s):
            plan = StepPlan(
                steps.first_step_id + step,
                tuple(Slice(each, start + step, 1, True) for each, start in first.items()),
                table_updates=tuple(grown.get(step, ())),
                released=() if step else steps.released,
            )
            tokens = {s.sequence_id: SampledToken(s.output_token_ids[step - count]) for s in starts}
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
