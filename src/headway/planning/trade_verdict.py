"""From the figures of a trade to what to do: scale, batch, shrink, or leave it as it is.

One rule decides at the trough and at the peak: the fewest instances that keep the promise, and of
their batch limits the one nearest to the present. If none does, the setting that gains most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

from headway.planning.fleets import PROMISED_SHARE, WORTH
from headway.planning.trade import Outcome, Setting, Trade, Traded
from headway.report.text import percent


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do.

    Attributes:
        verdict: ``scale``, ``batch`` (another limit), ``shrink``, ``keep``, or ``nothing`` if no
            setting gains anything though the promise isn't kept.
        advice: in a sentence, with the figures that decide.
        setting: the one that is advised.
    """

    verdict: str
    advice: str
    setting: Setting


def summary(trade: Trade) -> Verdict:
    """Return what to do at the peak, which a fleet is made for, and in words also at the trough."""
    verdicts = [(each.window.name, decide(each)) for each in trade.windows]
    _, last = verdicts[-1]
    if len(verdicts) == 1:
        return last
    (name, trough), (other, peak) = verdicts
    advice = f"at the {other} {peak.advice}; at the {name} {trough.advice}"
    return Verdict(peak.verdict, advice, peak.setting)


def decide(traded: Traded) -> Verdict:
    """Return what to do in a window."""
    keepers = [each for each in traded.outcomes.values() if _keeps(each)]
    if keepers:
        return _kept(traded, min(keepers, key=lambda each: _cost(each, traded.base)))
    best = max(_attained(each) for each in traded.outcomes.values())
    near = [each for each in traded.outcomes.values() if _attained(each) > best - WORTH]
    chosen = min(near, key=lambda each: _cost(each, traded.base))
    present = traded.outcomes[traded.base]
    if _attained(chosen) - _attained(present) < WORTH:
        return Verdict("nothing", _in_vain(traded, present), traded.base)
    return _not_enough(traded, chosen)


def _keeps(outcome: Outcome) -> bool:
    return _attained(outcome) >= PROMISED_SHARE


def _attained(outcome: Outcome) -> float:
    return outcome.of("attained").mean


def _cost(outcome: Outcome, base: Setting) -> tuple[int, float, int]:
    """Return what makes a setting less welcome: instances, then how far its limit is from now."""
    setting = outcome.setting
    distance = abs(log2(setting.batch_limit / base.batch_limit))
    return setting.instances, distance, setting.batch_limit


def _kind(setting: Setting, base: Setting) -> str:
    if setting == base:
        return "keep"
    if setting.instances == base.instances:
        return "batch"
    return "scale" if setting.instances > base.instances else "shrink"


# -------------------------------------------------------------------- in words


def _kept(traded: Traded, chosen: Outcome) -> Verdict:
    base, setting = traded.base, chosen.setting
    kind = _kind(setting, base)
    words = {"keep": _enough, "batch": _other_batch, "scale": _more, "shrink": _fewer}[kind]
    return Verdict(kind, words(traded, chosen), setting)


def _enough(traded: Traded, chosen: Outcome) -> str:
    fewer = [each for each in traded.outcomes.values() if _instances(each) < _instances(chosen)]
    text = f"keep {_named(chosen, traded.base)}: {percent(_attained(chosen))} keep their targets"
    if fewer:
        text += f", with {_count(_instances(fewer[0]))} at most {percent(_best(fewer))}"
    return f"{text}; {_unused(chosen)}"


def _fewer(traded: Traded, chosen: Outcome) -> str:
    present = traded.outcomes[traded.base]
    return (
        f"shrink to {_named(chosen, traded.base)}: {percent(_attained(chosen))} keep their "
        f"targets; of {_count(_instances(present))} {_unused(present)}"
    )


def _other_batch(traded: Traded, chosen: Outcome) -> str:
    limit, present = chosen.setting.batch_limit, traded.base.batch_limit
    return (
        f"batch {'more' if limit > present else 'less'}: with a limit of {limit} in place of "
        f"{present}, {_instead(traded, chosen)}; no instance is added"
    )


def _more(traded: Traded, chosen: Outcome) -> str:
    same = [each for each in traded.outcomes.values() if _instances(each) == traded.base.instances]
    return (
        f"scale to {_named(chosen, traded.base)}: {_instead(traded, chosen)}; no other batch limit "
        f"brings {_count(traded.base.instances)} beyond {percent(_best(same))}"
    )


def _not_enough(traded: Traded, chosen: Outcome) -> Verdict:
    text = (
        f"{_named(chosen, traded.base)} gain most, and not enough: {_instead(traded, chosen)}, "
        f"and promised are {percent(PROMISED_SHARE)}"
    )
    most = max(map(_instances, traded.outcomes.values()))
    if _instances(chosen) == most:
        text += f"; --replicas {most} looks further"
    return Verdict(_kind(chosen.setting, traded.base), text, chosen.setting)


def _in_vain(traded: Traded, present: Outcome) -> str:
    text = f"nothing gains: {percent(_attained(present))} keep their targets with any setting near"
    if traded.alone is not None and traded.alone < PROMISED_SHARE:
        return f"{text}, and alone {percent(traded.alone)}: a faster machine, or other targets"
    return f"{text}: see the p99 for what they miss"


def _instead(traded: Traded, chosen: Outcome) -> str:
    now = _attained(traded.outcomes[traded.base])
    return f"{percent(_attained(chosen))} keep their targets in place of {percent(now)}"


def _named(outcome: Outcome, base: Setting) -> str:
    setting = outcome.setting
    other = (
        "" if setting.batch_limit == base.batch_limit else f" of batches of {setting.batch_limit}"
    )
    return f"{_count(setting.instances)}{other}"


def _count(instances: int) -> str:
    return "1 instance" if instances == 1 else f"{instances} instances"


def _unused(outcome: Outcome) -> str:
    return f"{percent(outcome.headroom.mean)} of what they can do is not used"


def _instances(outcome: Outcome) -> int:
    return outcome.setting.instances


def _best(outcomes: Iterable[Outcome]) -> float:
    return max(map(_attained, outcomes))
