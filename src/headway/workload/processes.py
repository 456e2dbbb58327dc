"""When requests come: renewal processes, at a rate that may change over time.

A process is a sequence of gaps of mean 1, laid on the *expected number of arrivals so far* in place
of the clock. So one process works at any rate, and at one that changes in steps: a Poisson process
stays exactly Poisson, and a bursty one keeps its coefficient of variation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from math import gamma as gamma_function
from math import inf
from random import Random

from headway.workload.errors import WorkloadError

RateStep = tuple[float, float]
"""(seconds, arrivals a second)"""

Gaps = Iterator[float]


def exponential(random: Random) -> Gaps:
    """Yield gaps of a Poisson process of rate 1."""
    while True:
        yield random.expovariate(1.0)


def gamma(random: Random, cv: float) -> Gaps:
    """Yield gaps of mean 1 and coefficient of variation ``cv``; 1 is Poisson, more comes in bursts.

    vLLM's ``burstiness`` is the shape, ``1 / cv**2``.
    """
    if not 0 < cv < inf:
        raise WorkloadError(f"a coefficient of variation must be above 0, not {cv}")
    shape = 1 / cv**2
    while True:
        yield random.gammavariate(shape, 1 / shape)


def weibull(random: Random, shape: float) -> Gaps:
    """Yield gaps of mean 1 of a Weibull process."""
    if not 0 < shape < inf:
        raise WorkloadError(f"the shape of a Weibull process must be above 0, not {shape}")
    scale = 1 / gamma_function(1 + 1 / shape)
    while True:
        yield random.weibullvariate(scale, shape)


def constant() -> Gaps:
    """Yield gaps of 1."""
    return repeat(1.0)


def at_rates(gaps: Gaps, steps: Sequence[RateStep]) -> Iterator[float]:
    """Yield the times of arrivals, in seconds, while the steps last.

    Args:
        gaps: of mean 1.
        steps: how long, and how many a second; the last may be endless. A rate of 0 is a pause; an
            infinite one has everything come at once.

    Raises:
        WorkloadError: a step has no sensible numbers.
    """
    for seconds, rate in steps:
        if not (seconds > 0 and rate >= 0):
            raise WorkloadError(f"a rate of {rate} a second can't last {seconds} s")
    if any(rate == inf for _, rate in steps):
        return repeat(0.0)
    return _placed(accumulate(gaps), steps)


def _placed(counts: Iterator[float], steps: Sequence[RateStep]) -> Iterator[float]:
    """Yield when so many arrivals were to be expected."""
    count = next(counts)
    began_s, before = 0.0, 0.0
    for seconds, rate in steps:
        after = before + seconds * rate if rate else before
        while count < after:
            yield began_s + (count - before) / rate
            count = next(counts)
        began_s, before = began_s + seconds, after


def steady(rate: float) -> tuple[RateStep, ...]:
    """Return the steps of a rate that stays."""
    if not rate > 0:
        raise WorkloadError(f"rate must be above 0 a second, not {rate}")
    return ((inf, rate),)


def parse_steps(text: str) -> tuple[RateStep, ...]:
    """Read ``SECONDS:RATE,SECONDS:RATE,…``.

    Raises:
        WorkloadError: that's not what it is.
    """
    try:
        steps = [tuple(float(number) for number in each.split(":")) for each in text.split(",")]
        pairs = tuple((seconds, rate) for seconds, rate in steps)
    except ValueError:
        raise WorkloadError(f"{text!r} are no rates: SECONDS:RATE,SECONDS:RATE,…") from None
    if not all(0 < seconds < inf and 0 <= rate < inf for seconds, rate in pairs):
        raise WorkloadError(f"{text!r} are no rates: seconds are above 0, rates not below")
    return pairs
