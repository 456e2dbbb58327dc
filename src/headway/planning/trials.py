"""Tries setups on days that all of them have in common, few of them first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

from headway.planning.batch import Batch
from headway.planning.chance import Chance
from headway.planning.choices import Choice, Setup
from headway.planning.days import Days
from headway.planning.demand import class_names
from headway.planning.trial import Candidate, TrialResult, trial
from headway.profiles.interference import Interference
from headway.report.figures import promised
from headway.sim.replica import Machine
from headway.sim.routers import RouterName
from headway.workload import Workload, WorkloadError

_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How sure a plan is to be, and what it may cost to find.

    Attributes:
        promise: chance that all targets hold on a day.
        num_days: on which the plan is judged.
        num_screened: days on which a setup is looked at first.
        seed: of the days.
        most_instances: instances at most.
    """

    promise: float = 0.95
    num_days: int = 40
    num_screened: int = 4
    seed: int = 0
    most_instances: int = 64

    def allowed(self, num_days: int) -> int:
        """Return how many of so many days may be missed, so that one more holds as promised.

        With fewer than ``promise / (1 - promise)`` days none may, and even that shows less.
        """
        return max(floor(num_days - self.promise * (num_days + 1) + 1e-9), 0)

    def holds(self, chance: Chance) -> bool:
        """Whether so many days are enough."""
        return chance.of - chance.held <= self.allowed(chance.of)

    def may_hold(self, chance: Chance) -> bool:
        """Whether a few days leave hope: one more may be missed, since they say little."""
        return chance.of - chance.held <= self.allowed(self.num_screened) + 1


class Trials:
    """Simulates setups, each on the same days.

    A plan is judged on other days than those on which setups are compared: the best of several on a
    few days looks better than it is.

    Attributes:
        terms: how many days.
        screening_days: those on which setups are compared.

    Args:
        days: where these come from.
        terms: how many.
        machine_of: makes the machine of a batch.
        router: chooses among instances.
        interference: of such machines.
        tell: takes a line of progress.

    Raises:
        WorkloadError: a class comes on a day whose targets don't know it.
    """

    def __init__(
        self,
        days: Days,
        terms: Terms,
        machine_of: Callable[[Batch], Machine],
        *,
        router: RouterName = RouterName.LEAST_LOADED,
        interference: Interference | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.terms = terms
        drawn = list(days.draw(terms.num_screened + terms.num_days, terms.seed))
        _check_classes(drawn)
        self.screening_days: Sequence[Workload] = drawn[: terms.num_screened]
        self._days = drawn[terms.num_screened :]
        self._machine_of = machine_of
        self._router = router
        self._interference = interference
        self._tell = tell
        self._screened: dict[_Key, Choice] = {}
        self._judged: dict[_Key, Choice] = {}

    @property
    def choices(self) -> list[Choice]:
        """All that was tried, each by the most days on which it was."""
        return list((self._screened | self._judged).values())

    def screen(self, setup: Setup) -> Choice:
        """Try a setup on a few days."""
        key = _key(setup)
        if key not in self._screened:
            self._screened[key] = self._try(setup, self.screening_days, self.terms.may_hold)
        return self._screened[key]

    def judge(self, setup: Setup) -> Choice:
        """Try a setup on all days, or until it can't hold any more."""
        key = _key(setup)
        if key not in self._judged:
            self._judged[key] = self._try(setup, self._days, self._may_still_hold)
        return self._judged[key]

    def on(self, setup: Setup, days: Sequence[Workload]) -> TrialResult:
        """Try a setup on other days."""
        return trial(self._candidate(setup), days)

    def _may_still_hold(self, chance: Chance) -> bool:
        return chance.of - chance.held <= self.terms.allowed(len(self._days))

    def _try(
        self, setup: Setup, days: Sequence[Workload], has_hope: Callable[[Chance], bool]
    ) -> Choice:
        candidate = self._candidate(setup)
        result = trial(candidate, days, is_enough=lambda chance: not has_hope(chance))
        choice = Choice(setup, result)
        chance = result.chance
        self._tell(f"{setup}: {chance.held} of {chance.of} days hold, {_worst(choice)}")
        return choice

    def _candidate(self, setup: Setup) -> Candidate:
        return Candidate(
            machine=self._machine_of(setup.batch),
            instances=setup.instances,
            router=self._router,
            interference=self._interference,
        )


def _check_classes(days: Sequence[Workload]) -> None:
    """Refuse days with a class that nothing is known of: no machine is planned for it."""
    for day in days:
        for name in class_names(day):
            if promised(day.targets, name) is None:
                raise WorkloadError(
                    f"class {name} comes on some days, and not on the one that is planned for: "
                    "make it longer (duration_s)"
                )


def _key(setup: Setup) -> _Key:
    return setup.batch.num_seqs, setup.batch.budget, setup.instances


def _worst(choice: Choice) -> str:
    if choice.risk == float("inf"):
        return "some requests not served"
    return f"at worst {choice.risk:.0%} of a limit"
