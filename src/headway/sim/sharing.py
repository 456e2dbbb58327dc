"""Two engines that take turns on one executor, each with sequences, blocks and a clock of its own.

What one of them measures is then of the same machine as what the other one runs, however that
machine's speed wanders, and of other steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from headway.core.limits import SchedulerLimits
from headway.core.plan import BlockMove, SequenceId, StepPlan, StepResult
from headway.core.ports import Executor
from headway.engine.clock import Clock


def half_of(limits: SchedulerLimits) -> SchedulerLimits:
    """Return limits with half of the blocks."""
    return replace(
        limits, num_blocks=limits.num_blocks // 2, num_swap_blocks=limits.num_swap_blocks // 2
    )


def halves(executor: Executor) -> tuple[Executor, Executor]:
    """Return the executor twice, each with every second block."""
    step_ids = count(1)
    return _Half(executor, step_ids, 0), _Half(executor, step_ids, 1)


class _Half:
    """Gives plans ids that the other half does not use: every second sequence and block.

    The two have the same places in memory then. Of a pool's lower and upper half one may be a
    little faster.
    """

    def __init__(self, inner: Executor, step_ids: Iterator[int], which: int) -> None:
        self._inner = inner
        self._step_ids = step_ids
        self._which = which

    def run(self, plan: StepPlan) -> StepResult:
        """Run the plan, and return its result under the ids that it came with."""
        result = self._inner.run(self._moved(plan))
        return replace(
            result,
            step_id=plan.step_id,
            tokens={self._ours(each): token for each, token in result.tokens.items()},
            failures={self._ours(each): text for each, text in result.failures.items()},
        )

    def _moved(self, plan: StepPlan) -> StepPlan:
        return replace(
            plan,
            step_id=next(self._step_ids),
            slices=tuple(
                each._replace(sequence_id=self._sequence(each.sequence_id)) for each in plan.slices
            ),
            new_sequences=tuple(
                replace(new, sequence_id=self._sequence(new.sequence_id))
                for new in plan.new_sequences
            ),
            table_updates=tuple(
                replace(
                    update,
                    sequence_id=self._sequence(update.sequence_id),
                    block_ids=tuple(map(self._theirs, update.block_ids)),
                )
                for update in plan.table_updates
            ),
            released=tuple(map(self._sequence, plan.released)),
            swap_out=self._moves(plan.swap_out),
            copies=self._moves(plan.copies),
            swap_in=self._moves(plan.swap_in),
        )

    def _theirs(self, ours: int) -> int:
        return 2 * ours + self._which

    def _sequence(self, ours: SequenceId) -> SequenceId:
        return SequenceId(self._theirs(ours))

    def _moves(self, moves: tuple[BlockMove, ...]) -> tuple[BlockMove, ...]:
        return tuple(
            BlockMove(self._theirs(each.source), self._theirs(each.target)) for each in moves
        )

    @staticmethod
    def _ours(theirs: SequenceId) -> SequenceId:
        return SequenceId(theirs // 2)


class Stopwatch:
    """Implements :class:`Clock`: the time of another clock while it isn't stopped, from 0 on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self._passed_s = 0.0

    def now(self) -> float:
        """Return for how long it has been running."""
        since = 0.0 if self._began_s is None else self._clock.now() - self._began_s
        return self._passed_s + since

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._clock.sleep(seconds)

    def start(self) -> None:
        """Go on."""
        self._began_s = self._clock.now()

    def stop(self) -> None:
        """Stand still."""
        self._passed_s, self._began_s = self.now(), None


def in_turn(
    main: Iterator[float],
    clock: Stopwatch,
    other: Iterator[float],
    other_clock: Stopwatch,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Turn ``main`` to its end, and after each step the other until it has had as much time.

    Both yield the seconds of each step that they compute; ``other`` does not end. Of the clocks,
    which stand still at first and in the end, only that of the one whose turn it is goes on.
    After a turn of the other, what is to be done ``between`` is done while both stand still.
    """
    owed_s = 0.0
    clock.start()
    for step_s in main:
        owed_s += step_s
        clock.stop()
        other_clock.start()
        while owed_s > 0:
            owed_s -= next(other)
        other_clock.stop()
        between()
        clock.start()
    clock.stop()
