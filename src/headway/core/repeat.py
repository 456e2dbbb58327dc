"""Steps that only repeat the one before: a token more for each sequence, and nothing to decide.

Most steps are such: nobody comes, ends, or waits for what is free. Whoever knows their results in
advance, as a simulator does, may take many of them at once. The outcome is that of as many calls of
``schedule`` and ``apply``, to the last block id: what decides is asked whether its answer could
change before somebody comes or ends, and only if it can't are steps repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from headway.core.admission import Admission
from headway.core.commit import update_tables
from headway.core.deadlines import Deadlines
from headway.core.limits import Batching, SchedulerLimits
from headway.core.plan import SequenceId, TableUpdate
from headway.core.results import Results
from headway.core.work import Work


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The next steps: each computes one position of each member of the lockstep.

    Attributes:
        first_step_id: of the first plan that they stand for.
        released: the executor forgets these in the first of the steps.
        most: so many steps at most; in the last one sequences may end.
        before_s: each step must begin before that moment, or a deadline passes.
    """

    first_step_id: int
    released: tuple[SequenceId, ...]
    most: int
    before_s: float


@dataclass(frozen=True, slots=True)
class Repeated:
    """Steps that were computed, each planned when the one before had ended.

    Attributes:
        began_s: when the first was planned.
        ended_s: when the result of each was applied.
        elapsed_s: how long each took.
    """

    began_s: float
    ended_s: Sequence[float]
    elapsed_s: Sequence[float]


class Repeater:
    """Finds out how long nothing is decided, and takes the results of such steps in.

    Attributes:
        may_begin: whether decodes may go in lockstep at all.
    """

    def __init__(
        self,
        work: Work,
        limits: SchedulerLimits,
        admission: Admission,
        deadlines: Deadlines,
        results: Results,
    ) -> None:
        self._work = work
        self._admission = admission
        self._deadlines = deadlines
        self._results = results
        self.may_begin = limits.batching is Batching.CONTINUOUS and limits.max_plans_in_flight == 1

    def join(self) -> bool:
        """Have all who decode in lockstep; False, and nobody, if that can't be."""
        work = self._work
        is_quiet = self.may_begin and work.decoding and not work.in_flight
        if is_quiet and work.lockstep.join(work.decoding.values()):
            return True
        work.lockstep.settle()
        return False

    def outlook(self, now: float) -> Repeatable | None:
        """Return the steps that can be repeated from now on; None if something is to be decided."""
        work = self._work
        if work.prefilling or work.events or work.swap_out:  # of which the next plan is to tell
            return None
        before_s = self._deadlines.next()
        if before_s is not None and before_s <= now:
            return None
        if not self._admission.starts_nobody(now):
            return None
        if not self.join():
            return None
        most = work.lockstep.num_steps_with_blocks(work.lockstep.next_end())
        if most < 1:
            return None
        return Repeatable(
            work.counters.steps,
            tuple(work.released),
            most,
            inf if before_s is None else before_s,
        )

    def take(self, repeated: Repeated) -> tuple[TableUpdate, ...]:
        """Take steps over: blocks, and who ends; return how the block tables have grown.

        Raises:
            InvariantError: there are more steps than could be repeated.
        """
        work, num_steps = self._work, len(repeated.ended_s)
        work.released = []
        work.counters.steps += num_steps
        work.counters.turns += num_steps
        updates = tuple(update_tables(work.lockstep.grow_for(num_steps)))
        for account in work.accounts.values():
            account.service.num_output_tokens += account.num_decoding * num_steps
        self._results.advance(num_steps, repeated.ended_s[-1])
        return updates
