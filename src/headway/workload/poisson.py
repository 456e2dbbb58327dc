"""Arrivals without memory: a Poisson process, with lengths that somebody else chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError

Lengths = tuple[int, int]
"""(prompt tokens, output tokens)"""


def exponential_gaps(rate: float, random: Random) -> Iterator[float]:
    """Yield arrival times of a Poisson process of ``rate`` a second, for ever."""
    if not rate > 0:
        raise WorkloadError(f"rate must be above 0 a second, not {rate}")
    now = 0.0
    while True:
        now += random.expovariate(rate)
        yield now


def poisson_arrivals(
    rate: float,
    lengths: Iterable[Lengths],
    random: Random,
    *,
    duration_s: float = float("inf"),
    class_name: str = "default",
    tenant: str = "",
) -> list[Arrival]:
    """Return one arrival for each of the lengths, or those that come before ``duration_s``.

    Endless ``lengths`` need a finite duration.
    """
    arrivals: list[Arrival] = []
    for at_s, (prompt, output) in zip(exponential_gaps(rate, random), lengths, strict=False):
        if at_s >= duration_s:
            break
        arrivals.append(
            Arrival(
                at_s=at_s,
                prompt_tokens=prompt,
                output_tokens=output,
                class_name=class_name,
                tenant=tenant,
            )
        )
    return arrivals


def drawn_from(pool: Sequence[Lengths], random: Random) -> Iterator[Lengths]:
    """Yield pairs of the pool, drawn with replacement, for ever: prompt and output together."""
    while True:
        yield random.choice(pool)


def drawn_between(prompt: Lengths, output: Lengths, random: Random) -> Iterator[Lengths]:
    """Yield lengths drawn evenly between two bounds each, both included, for ever."""
    while True:
        yield random.randint(*prompt), random.randint(*output)
