"""Continuous batching: every step anew, without padding: decodes, then prefills, then new work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headway.core.admission import Admission
from headway.core.chunking import Chunking
from headway.core.draft import StepDraft
from headway.core.growth import Growth
from headway.core.lifecycle import State
from headway.core.policy import Policies
from headway.core.sequence import Sequence
from headway.core.turns import Turns
from headway.core.work import Work


class Planner(Protocol):
    """A batching mode: fills a draft."""

    def plan(self, draft: StepDraft, now: float) -> None:
        """Choose the slices of the next step."""
        ...


class ContinuousPlanner:
    """Shares the token budget out."""

    def __init__(
        self,
        work: Work,
        policies: Policies,
        growth: Growth,
        chunking: Chunking,
        turns: Turns,
        admission: Admission,
    ) -> None:
        self._policies = policies
        self._work = work
        self._growth = growth
        self._chunking = chunking
        self._turns = turns
        self._admission = admission

    def plan(self, draft: StepDraft, now: float) -> None:
        """Choose the slices of the next step."""
        self._growth.plan_decodes(draft, now)
        if self._work.prefilling or self._turns.is_waited_for:
            self._plan_others(draft, now)
        else:
            self._admission.rest()

    def _plan_others(self, draft: StepDraft, now: float) -> None:
        """Share what the decodes leave: between prefills and new work."""
        reserved, others = self._split(self._work.prefilling.values(), _is_reserved)
        draft.withheld = self._turns.num_waiting_reserved
        self._prefill(draft, reserved, now)
        self._admission.run_reserved(draft, now)
        self._chunking.protect_decodes(draft, now)
        borrowers, others = self._split(others, _is_borrower)
        others.sort(key=self._policies.by_right)
        if any(map(self._is_long, others)):
            self._plan_short_first(draft, others, now)
        else:
            self._plan_by_right(draft, others, now)
        self._admission.run(draft, now)
        self._prefill(draft, borrowers, now)

    def _plan_short_first(self, draft: StepDraft, others: list[Sequence], now: float) -> None:
        """Short prefills and new work leave half of the budget to the long ones."""
        long, short = self._split(others, self._is_long)
        draft.withheld = draft.budget // 2
        self._prefill(draft, short, now)
        self._admission.run(draft, now)
        draft.withheld = 0
        self._prefill(draft, long, now)

    def _plan_by_right(self, draft: StepDraft, others: list[Sequence], now: float) -> None:
        """Waiting work goes before running prefills of lesser right, and these get what is left."""
        first = self._turns.first() if others else None
        if first is None:
            self._prefill(draft, others, now)
            return
        junior, senior = self._split(others, lambda s: self._policies.precedes(first, s))
        self._prefill(draft, senior, now)
        if junior:
            self._admission.run(draft, now, ahead_of=junior[0])
        self._prefill(draft, junior, now)

    def _split(
        self, sequences: Iterable[Sequence], condition: Callable[[Sequence], bool]
    ) -> tuple[list[Sequence], list[Sequence]]:
        """Return those that meet the condition, and the others."""
        meeting: list[Sequence] = []
        others: list[Sequence] = []
        for sequence in sequences:
            (meeting if condition(sequence) else others).append(sequence)
        return meeting, others

    def _is_long(self, sequence: Sequence) -> bool:
        return self._chunking.is_long(sequence.num_remaining_tokens)

    def _prefill(self, draft: StepDraft, sequences: list[Sequence], now: float) -> None:
        for sequence in sequences:
            if sequence.state is not State.RUNNING:  # it gave its blocks to another
                continue
            count = self._chunking.length(draft, sequence, sequence.num_remaining_tokens)
            if count > 0 and self._growth.grow(draft, sequence, count, now):
                draft.add(sequence, count)


def _is_reserved(sequence: Sequence) -> bool:
    return sequence.account.has_reservation


def _is_borrower(sequence: Sequence) -> bool:
    return sequence.is_borrower
