"""The protocol at the edge of the core: what computes a plan."""

from __future__ import annotations

from typing import Protocol

from headway.core.plan import StepPlan, StepResult


class Executor(Protocol):
    """Computes plans; :mod:`headway.core.plan` says what it keeps and in which order it acts."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step.

        A fault of one sequence is reported in ``failures`` and never raised; an exception means
        that the whole step failed.
        """
        ...
