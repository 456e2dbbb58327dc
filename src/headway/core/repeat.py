"""Steps that only repeat the one before: a token more for each sequence, and nothing to decide.

Most steps are such: nobody comes, ends, or waits for what is free. Whoever knows their results in
advance, as a simulator does, may take many of them at once. The outcome is that of as many calls of
``schedule`` and ``apply``, to the last block id: what decides is asked whether its answer could
change before somebody comes or ends, and only if it can't are steps repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headway.core.admission import Admission
from headway.core.commit import update_tables
from headway.core.deadlines import Deadlines
from headway.core.limits import Batching, SchedulerLimits
from headway.core.plan import RequestId, SequenceId, TableUpdate
from headway.core.results import Results
from headway.core.sequence import Sequence as LiveSequence
from headway.core.work import Work
from headway.errors import InvariantError


@dataclass(frozen=True, slots=True)
class Repeatable:
    """What the next steps are alike: each computes one position of each of these sequences.

    Attributes:
        first_step_id: of the first plan that they stand for.
        sequence_ids: in the order of the slices.
        request_ids: of the same sequences.
        released: the executor forgets these in the first of the steps.
        most: so many steps at most; in the last one sequences may end.
        before_s: each step must begin before that moment, or a deadline passes.
    """

    first_step_id: int
    sequence_ids: tuple[SequenceId, ...]
    request_ids: tuple[RequestId, ...]
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
        token_ids: what each sequence drew, in the order of the steps.
    """

    began_s: float
    ended_s: Sequence[float]
    elapsed_s: Sequence[float]
    token_ids: Mapping[SequenceId, list[int]]


class Repeater:
    """Finds out how long nothing is decided, and takes the results of such steps in."""

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
        self._block_size = limits.block_size
        self._may_repeat = (
            limits.batching is Batching.CONTINUOUS and limits.max_plans_in_flight == 1
        )

    def outlook(self, now: float) -> Repeatable | None:
        """Return the steps that can be repeated from now on; None if something is to be decided."""
        work = self._work
        if not self._may_repeat or work.prefilling or not work.decoding or work.in_flight:
            return None
        if work.events or work.swap_out:  # which the next plan is to tell
            return None
        before_s = self._deadlines.next()
        if before_s is not None and before_s <= now:
            return None
        if not self._admission.starts_nobody(now):
            return None
        decoding = work.decoding.values()
        most = min(
            min([s.max_tokens - len(s.output_token_ids) for s in decoding]),
            self._num_steps_with_blocks(),
        )
        if most < 1:
            return None
        return Repeatable(
            work.counters.steps,
            tuple(work.decoding),
            tuple([s.request_id for s in decoding]),
            tuple(work.released),
            most,
            inf if before_s is None else before_s,
        )

    def take(self, repeated: Repeated) -> tuple[TableUpdate, ...]:
        """Take steps over: blocks, tokens, and who ends; return how the block tables have grown.

        Raises:
            InvariantError: a sequence would have ended before the last step.
        """
        work, num_steps = self._work, len(repeated.ended_s)
        work.released = []
        work.counters.steps += num_steps
        work.counters.turns += num_steps
        decoding = list(work.decoding.values())
        updates = tuple(update_tables(self._grow(decoding, num_steps)))
        for account in work.accounts.values():
            account.service.num_output_tokens += account.num_decoding * num_steps
        charges_tenants = self._results.charges_tenants
        ending: list[LiveSequence] = []
        for sequence in decoding:
            outputs, drawn = sequence.output_token_ids, repeated.token_ids[sequence.sequence_id]
            for stop in sequence.stop_token_ids:
                if stop in drawn and drawn.index(stop) < num_steps - 1:
                    raise InvariantError(f"sequence {sequence.sequence_id} stops between")
            outputs += drawn
            sequence.num_tokens += num_steps
            sequence.num_scheduled_tokens += num_steps
            sequence.num_computed_tokens += num_steps
            if charges_tenants:
                sequence.service.num_output_tokens += num_steps
            if len(outputs) >= sequence.max_tokens or outputs[-1] in sequence.stop_token_ids:
                ending.append(sequence)
        for sequence in ending:
            self._results.end_if_complete(
                sequence, sequence.output_token_ids[-1], repeated.ended_s[-1]
            )
        return updates

    def _grow(self, decoding: list[LiveSequence], num_steps: int) -> list[LiveSequence]:
        """Give blocks in the order of the steps that need them; return whoever got any."""
        needs: dict[int, list[LiveSequence]] = {}
        grown: list[LiveSequence] = []
        for sequence in decoding:
            first = sequence.num_held_positions - sequence.num_scheduled_tokens
            if first < num_steps:
                grown.append(sequence)
                for step in range(first, num_steps, self._block_size):
                    needs.setdefault(step, []).append(sequence)
        if not self._work.memory.extend_in_order([needs[step] for step in sorted(needs)]):
            raise InvariantError(f"no blocks are left for {num_steps} steps")
        return grown

    def _num_steps_with_blocks(self) -> int:
        """Return for how many steps there are blocks for all, with none to give way."""
        memory = self._work.memory
        decoding = list(self._work.decoding.values())
        most = self._num_steps_on(memory.num_unreserved, decoding)
        if memory.has_shares:
            for account in Counter([s.account for s in decoding]):
                own = [s for s in decoding if s.account is account]
                most = min(most, self._num_steps_on(account.num_share_blocks, own))
        return most

    def _num_steps_on(self, num_free: int, decoding: list[LiveSequence]) -> int:
        """Return for how many steps so many blocks suffice, or a number that is safe."""
        if num_free >= len(decoding):
            return num_free // len(decoding) * self._block_size
        if num_free < 0:
            return 0
        waits = sorted([s.num_held_positions - s.num_scheduled_tokens for s in decoding])
        return waits[num_free]
