"""Step 6: the cheapest setup that holds, from what the arithmetic says."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, log2

from headway.planning.arithmetic import Arithmetic
from headway.planning.batch import Batch
from headway.planning.choices import Choice, Setup
from headway.planning.trials import Trials
from headway.profiles.shape import StepCost


class Search:
    """Looks for the fewest instances that hold, and of their batches for the one with least risk.

    Args:
        trials: tries setups.
        batches: those to try, the one of the arithmetic first.
        least: instances below which the queue grows all day, whatever the batch.
    """

    def __init__(self, trials: Trials, batches: Sequence[Batch], least: int) -> None:
        self._trials = trials
        self._batches = batches
        self._least = least
        self._found: dict[int, Choice | None] = {}

    def run(self, first: int) -> Choice | None:
        """Return the cheapest choice that holds, beginning with so many instances; None if none."""
        most = self._trials.terms.most_instances
        first = min(first, most)
        low, high = self._least - 1, first
        if self._holding(first) is None:
            found = self._climb(first, most)
            if found is None:
                return None
            low, high = found
        while high - low > 1:
            middle = (low + high) // 2 if high - low > _NEAR else high - 1
            low, high = (low, middle) if self._holding(middle) else (middle, high)
        return self._holding(high)

    def _climb(self, first: int, most: int) -> tuple[int, int] | None:
        """Return the last number of instances that was tried in vain, and one that holds."""
        low, step = first, 1
        while low < most:
            high = min(low + step, most)
            if self._holding(high) is not None:
                return low, high
            low, step = high, max(2 * step, high // _GROWTH)
        return None

    def _holding(self, instances: int) -> Choice | None:
        """Return the choice with least risk of those that hold with so many instances."""
        if instances not in self._found:
            self._found[instances] = self._best(instances)
        return self._found[instances]

    def _best(self, instances: int) -> Choice | None:
        screened = [self._trials.screen(Setup(batch, instances)) for batch in self._batches]
        terms = self._trials.terms
        hopeful = [each for each in screened if terms.may_hold(each.result.chance)]
        for each in sorted(hopeful, key=self._preference):
            judged = self._trials.judge(each.setup)
            if terms.holds(judged.result.chance):
                return judged
        return None

    def _preference(self, choice: Choice) -> tuple[float, float]:
        """Return the risk, and of about the same risk how far it is from the arithmetic's batch."""
        apart = log2(choice.setup.batch.num_seqs / self._batches[0].num_seqs)
        risk = choice.risk
        return (ceil(risk / _RISK_STEP) if risk < inf else inf), abs(apart)


#: risks that differ by less are the same
_RISK_STEP = 0.05
#: fewer instances between two numbers are tried one by one, from above
_NEAR = 4
#: as many as are there already, over this, are added at once
_GROWTH = 4


def batches_around(found: Arithmetic, cost: StepCost) -> list[Batch]:
    """Return the batch of the arithmetic, then half of it, larger ones, and what memory holds."""
    number = found.chosen.num_seqs
    by_memory = found.by_memory.num_seqs
    wanted = (number // 2, 2 * number, 4 * number, by_memory)
    others = {min(each, by_memory, found.most) for each in wanted} - {number, 0}
    return [found.chosen, *(found.batch_of(each, cost) for each in sorted(others))]
