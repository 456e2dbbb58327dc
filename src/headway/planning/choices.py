"""What can be chosen, and what came of it on the days on which it was tried."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from headway.planning.batch import Batch
from headway.planning.trial import AimResult, TrialResult


@dataclass(frozen=True, slots=True)
class Setup:
    """A batch, and how many instances have it."""

    batch: Batch
    instances: int

    def __str__(self) -> str:
        """As in progress and tables."""
        return (
            f"{counted(self.instances, 'instance')} with "
            f"{counted(self.batch.num_seqs, 'sequence')}, {self.batch.budget} tokens a step"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A setup that was tried."""

    setup: Setup
    result: TrialResult

    @property
    def risk(self) -> float:
        """How near the worst day came to a limit, as a share of it; beyond 1 it was missed."""
        return max(map(strain, self.result.aims), default=0.0)


def strain(found: AimResult) -> float:
    """Return the figure of the worst day, as a share of the limit."""
    figures = [each for each in found.by_day if each is not None]
    worst = max(figures, default=0.0)
    return worst / found.aim.limit_s if worst < inf else inf


def missed_of(result: TrialResult) -> list[AimResult]:
    """Return the targets that were missed on some day, the most often missed first."""
    aims = (each for each in result.aims if each.chance.held < each.chance.of)
    return sorted(aims, key=lambda each: each.chance.held)


def counted(number: int, noun: str) -> str:
    """Return so many of something."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
