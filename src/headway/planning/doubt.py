"""Why a plan can promise less than it was asked to."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from headway.planning.chance import Chance
from headway.planning.choices import counted
from headway.planning.days import Days, most_promised
from headway.planning.trials import Terms


def doubts(days: Days, terms: Terms) -> Iterator[str]:
    """Yield a sentence for each: a recording of few days, and few days made of it."""
    by_recording = most_promised(days.num_recorded)
    fewest = ceil(terms.promise / (1 - terms.promise) - 1e-9)
    if by_recording < terms.promise - 1e-9:
        shown = f"{days.num_recorded:.3g}"
        length = f"{shown} day" if shown == "1" else f"{shown} days"
        yield (
            f"the recording is {length} long, by which {by_recording:.1%} can "
            f"be promised at most: for {terms.promise:.0%} record {fewest} days, or plan for "
            "shorter ones (--duration-s)"
        )
    by_days = Chance(terms.num_days, terms.num_days).of_next
    if by_days < terms.promise - 1e-9:
        yield (
            f"{counted(terms.num_days, 'simulated day')} can promise {by_days:.1%} at most: for "
            f"{terms.promise:.0%} make them {fewest} or more"
        )
