"""How likely something is that was seen so many times in so many trials, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, fsum, lgamma, log

_NUM_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Chance:
    """So many of so many independent trials held.

    Raises:
        ValueError: the numbers make no chance.
    """

    held: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.held <= self.of:
            raise ValueError(f"{self.held} of {self.of} trials can't have held")

    @property
    def share(self) -> float:
        """The share that held; 0 if nothing was tried."""
        return self.held / self.of if self.of else 0.0

    @property
    def of_next(self) -> float:
        """The least chance that one more trial holds, if it is like these: held / (of + 1).

        What holds may be a limit on a figure. The figure of one more trial is at most the k-th
        smallest of n with a chance of k / (n + 1), however it is distributed (Wilks,
        "Determination of sample sizes for setting tolerance limits", Annals of Mathematical
        Statistics 12, 1941).
        """
        return self.held / (self.of + 1)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that has the true chance in it in at least ``level`` of all cases.

        The exact one of Clopper and Pearson, "The use of confidence or fiducial limits illustrated
        in the case of the binomial", Biometrika 26 (1934).

        Raises:
            ValueError: ``level`` doesn't lie between 0 and 1.
        """
        _check(level)
        outside = 1 - level
        return self.at_least(1 - outside / 2), self._at_most(1 - outside / 2)

    def at_least(self, level: float = 0.95) -> float:
        """Return a bound that lies below the true chance in at least ``level`` of all cases.

        Raises:
            ValueError: ``level`` doesn't lie between 0 and 1.
        """
        _check(level)
        if self.held == 0:
            return 0.0
        return _root(lambda chance: at_least_so_many(self.held, self.of, chance) - (1 - level))

    def _at_most(self, level: float) -> float:
        _check(level)
        return 1 - Chance(self.of - self.held, self.of).at_least(level)


def at_least_so_many(held: int, of: int, chance: float) -> float:
    """Return how likely it is that at least ``held`` of ``of`` independent trials hold."""
    if held <= 0 or held > of:
        return float(held <= 0)
    if chance <= 0 or chance >= 1:
        return float(chance >= 1)
    # the shorter side of the two, whose terms are added without loss
    if held > of * chance:
        return fsum(_term(number, of, chance) for number in range(held, of + 1))
    return 1 - fsum(_term(number, of, chance) for number in range(held))


def _term(held: int, of: int, chance: float) -> float:
    ways = lgamma(of + 1) - lgamma(held + 1) - lgamma(of - held + 1)
    return exp(ways + held * log(chance) + (of - held) * log(1 - chance))


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, as {level} does not")


def _root(rising: Callable[[float], float]) -> float:
    """Return where a rising function goes through 0, from below, between 0 and 1."""
    low, high = 0.0, 1.0
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return low
