"""Step 6: the cheapest setup that holds, from what the arithmetic says."""

from __future__ import annotations

from collections.abc import Sequence

from headway.planning.arithmetic import Arithmetic
from headway.planning.batch import MOST_TOKENS, Batch
from headway.planning.choices import Choice, Setup
from headway.planning.trials import Trials
from headway.profiles.shape import StepCost


class Search:
    """Looks for the fewest instances that hold, with the arithmetic's batch or one around it.

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
        """Return what holds with so many instances, if anything does."""
        if instances not in self._found:
            self._found[instances] = self._best(instances)
        return self._found[instances]

    def _best(self, instances: int) -> Choice | None:
        """Return what holds with so many instances, if anything does.

        The arithmetic's batch goes first: few days say too little to leave it for another one.
        """
        first, *others = (Setup(batch, instances) for batch in self._batches)
        return self._first_that_holds([first]) or self._first_that_holds(others)

    def _first_that_holds(self, setups: Sequence[Setup]) -> Choice | None:
        """Return the first setup that holds, of those with hope by their risk on a few days."""
        terms = self._trials.terms
        screened = [self._trials.screen(each) for each in setups]
        hopeful = [each for each in screened if terms.may_hold(each.result.chance)]
        for each in sorted(hopeful, key=lambda choice: choice.risk):
            judged = self._trials.judge(each.setup)
            if terms.holds(judged.result.chance):
                return judged
        return None


#: fewer instances between two numbers are tried one by one, from above
_NEAR = 4
#: as many as are there already, over this, are added at once
_GROWTH = 4


def batches_around(found: Arithmetic, cost: StepCost) -> list[Batch]:
    """Return the batch of the arithmetic first, then those around it that are worth a trial.

    Half of it; two and four times as many sequences, as far as memory holds them; and as many in
    longer steps, which compute prompts sooner.
    """
    chosen = found.chosen
    number, most = chosen.num_seqs, min(found.by_memory.num_seqs, found.most)
    others = {min(each, most) for each in (number // 2, 2 * number, 4 * number)} - {number, 0}
    batches = [chosen, *(found.batch_of(each, cost) for each in sorted(others))]
    if found.budget is None and chosen.budget < MOST_TOKENS:
        longer = min(_LONGER * chosen.budget, MOST_TOKENS)
        batches.append(found.batch_of(number, cost, longer))
    return batches


#: times the tokens of a step
_LONGER = 4
