"""How long prompts and answers are: distributions, and the one way to write them down."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log
from random import Random

from headway.workload.errors import WorkloadError

#: longer than any context there is; a slip of the pen shouldn't take all memory
MAX_LENGTH = 10_000_000

SYNTAX = "N, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA or lognormal:MEDIAN:SIGMA:MAX"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of tokens: ``exp(normal(log(median), sigma))`` or even between two bounds.

    ``sigma`` 0 with ``low`` and ``high`` is the even distribution, both bounds included; one
    value has both the same.
    """

    low: int
    high: int
    median: float = 0.0
    sigma: float = 0.0

    def draw(self, random: Random) -> int:
        """Return one length."""
        if not self.sigma:
            return self.low if self.low == self.high else random.randint(self.low, self.high)
        drawn = exp(log(self.median) + self.sigma * random.gauss(0, 1))
        return max(self.low, min(self.high, round(drawn)))


def parse_lengths(text: str | int) -> Lengths:
    """Read a distribution as flags and workload files have it.

    Raises:
        WorkloadError: it is none; the message has the syntax.
    """
    kind, *numbers = ["fixed", str(text)] if isinstance(text, int) else _parts(text)
    try:
        return _made(kind, [float(number) for number in numbers])
    except (ValueError, OverflowError):
        flaw = f"{str(text)!r} is no length in tokens, from 1 to {MAX_LENGTH:,}: {SYNTAX}"
        raise WorkloadError(flaw) from None


def _parts(text: str) -> list[str]:
    parts = text.split(":")
    return ["fixed", *parts] if len(parts) == 1 else parts


def _made(kind: str, numbers: list[float]) -> Lengths:
    if kind == "fixed" and len(numbers) == 1:
        return Lengths(_length(numbers[0]), _length(numbers[0]))
    if kind == "uniform" and len(numbers) == 2:
        low, high = map(_length, numbers)
        if low <= high:
            return Lengths(low, high)
    if kind == "lognormal" and len(numbers) in (2, 3):
        median, sigma = numbers[0], numbers[1]
        high = _length(numbers[2]) if len(numbers) == 3 else MAX_LENGTH
        if 1 <= median <= high and 0 < sigma < inf:
            return Lengths(1, high, median, sigma)
    raise ValueError


def _length(number: float) -> int:
    if number != int(number) or not 1 <= number <= MAX_LENGTH:
        raise ValueError
    return int(number)
