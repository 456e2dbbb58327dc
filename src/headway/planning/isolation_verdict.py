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
        best: the separate ones whose class served worst is served best.
    """

    verdict: str
    advice: str
    pools: Pools
    best: Pools


def choose(found: Isolation) -> Choice:
    """Return what to do."""
    shared, best = found.judged
    if shared.worst.mean >= PROMISED_SHARE:
        return Choice("share", _enough(found), shared, best)
    gains = [new.worst - old.worst for new, old in zip(best.runs, shared.runs, strict=True)]
    if sum(gains) / len(gains) >= WORTH and min(gains) > 0:
        return Choice("isolate", _pays(found), best, best)
    return Choice("share", _does_not_pay(found), shared, best)


def _enough(found: Isolation) -> str:
    shared, best = found.judged
    return (
        f"one pool: every class keeps its promise, {percent(shared.worst.mean)} in time in "
        f"the one served worst; the best separate pools ({name_of(best.division, 0)}) keep "
        f"{percent(best.worst.mean)}{_cost(found)}"
    )


def _pays(found: Isolation) -> str:
    shared, best = found.judged
    text = (
        f"separate pools ({name_of(best.division, 0)}): {percent(best.worst.mean)} in time in the "
        f"class served worst, {percent(shared.worst.mean)} in one pool{_cost(found)}"
    )
    if best.worst.mean < PROMISED_SHARE:
        text += f"; promised are {percent(PROMISED_SHARE)}, so more instances are needed too"
    return text


def _does_not_pay(found: Isolation) -> str:
    shared, best = found.judged
    return (
        f"one pool: {percent(shared.worst.mean)} in time in the class served worst, and the "
        f"best separate pools ({name_of(best.division, 0)}) keep {percent(best.worst.mean)}"
        f"{_cost(found)}; more instances are needed, or other settings of the classes"
    )


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
