"""From the figures of shared and separate pools to which of them, and what decides.

A promise is made to each class, so pools are judged by the class that they serve worst. One pool is
simpler, and is kept unless it breaks a promise that separate ones keep better with every seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.planning.divisions import name_of
from headway.planning.fleets import PROMISED_SHARE, WORTH
from headway.planning.isolation import Isolation, Pools
from headway.report.text import percent


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do.

    Attributes:
        verdict: ``isolate`` or ``share``.
        advice: in a sentence, with the figures that decide.
        pools: those that are advised.
    """

    verdict: str
    advice: str
    pools: Pools


def choose(found: Isolation) -> Choice:
    """Return what to do."""
    shared, best = found.judged
    worst = percent(shared.worst.mean)
    if shared.worst.mean >= PROMISED_SHARE:
        kept = f"every class keeps its promise, {worst} in time in the one served worst"
        return Choice("share", _one_pool(found, kept), shared)
    gains = [new.worst - old.worst for new, old in zip(best.runs, shared.runs, strict=True)]
    if sum(gains) / len(gains) >= WORTH and min(gains) > 0:
        return Choice("isolate", _separate(found), best)
    broken = f"{worst} in time in the class served worst"
    more = "; more instances are needed, or other settings of the classes"
    return Choice("share", _one_pool(found, broken) + more, shared)


def _one_pool(found: Isolation, what: str) -> str:
    _, best = found.judged
    return (
        f"one pool: {what}; the best separate pools "
        f"({name_of(best.division, found.num_instances)}) keep {percent(best.worst.mean)}"
        f"{_cost(found)}"
    )


def _separate(found: Isolation) -> str:
    shared, best = found.judged
    text = (
        f"separate pools ({name_of(best.division, found.num_instances)}): "
        f"{percent(best.worst.mean)} in time in the class served worst, "
        f"{percent(shared.worst.mean)} in one pool{_cost(found)}"
    )
    if best.worst.mean < PROMISED_SHARE:
        text += f"; promised are {percent(PROMISED_SHARE)}, so more instances are needed too"
    return text


def _cost(found: Isolation) -> str:
    """Say how much longer instances idle while somebody waits, and what seeds figures are of."""
    old, new = (each.of(lambda run: run.idle_share).mean for each in found.judged)
    text = (
        f"; an instance idles while a request waits elsewhere {percent(new)} of the time in "
        f"separate pools, {percent(old)} in one"
    )
    if not found.num_others:
        return text
    return f"{text}; these are of {found.num_others} other seeds than those that chose the pools"
