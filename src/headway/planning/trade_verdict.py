"""From the figures of a trade to what to do: scale, batch, shrink, or leave it as it is.

One rule decides at the trough and at the peak: the fewest instances that keep the promise, and of
their batch limits the one nearest to the present. If none does, the setting that gains most.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.planning.choices import counted
from headway.planning.fleets import PROMISED_SHARE, WORTH
from headway.planning.trade_found import Setting, Trade, Traded
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
    keepers = traded.keepers()
    if keepers:
        return _kept(traded, keepers[0])
    present = traded.attained(traded.base)
    gains = {each: traded.attained(each) - present for each in traded.outcomes}
    most = max(gains.values())
    if most < WORTH:
        return Verdict("nothing", _in_vain(traded), traded.base)
    near = [each for each, gain in gains.items() if gain >= max(WORTH, most - WORTH)]
    return _not_enough(traded, min(near, key=traded.cost))


def _kind(setting: Setting, base: Setting) -> str:
    if setting == base:
        return "keep"
    if setting.instances == base.instances:
        return "batch"
    return "scale" if setting.instances > base.instances else "shrink"


# -------------------------------------------------------------------- in words


def _kept(traded: Traded, chosen: Setting) -> Verdict:
    kind = _kind(chosen, traded.base)
    words = {"keep": _enough, "batch": _other_batch, "scale": _more, "shrink": _fewer}[kind]
    return Verdict(kind, words(traded, chosen), chosen)


def _enough(traded: Traded, chosen: Setting) -> str:
    fewer = chosen.instances - 1
    text = f"keep {_named(traded, chosen)}: {percent(traded.attained(chosen))} keep their targets"
    if fewer:
        text += f", with {counted(fewer, 'instance')} at most {percent(_best(traded, fewer))}"
    return f"{text}; {_unused(traded, chosen)}"


def _fewer(traded: Traded, chosen: Setting) -> str:
    return (
        f"shrink to {_named(traded, chosen)}: {percent(traded.attained(chosen))} keep their "
        f"targets; of {counted(traded.base.instances, 'instance')} {_unused(traded, traded.base)}"
    )


def _other_batch(traded: Traded, chosen: Setting) -> str:
    limit, present = chosen.batch_limit, traded.base.batch_limit
    return (
        f"batch {'more' if limit > present else 'less'}: with a limit of {limit} in place of "
        f"{present}, {_instead(traded, chosen)}; no instance is added"
    )


def _more(traded: Traded, chosen: Setting) -> str:
    present = traded.base.instances
    return (
        f"scale to {_named(traded, chosen)}: {_instead(traded, chosen)}; no other batch limit "
        f"brings {counted(present, 'instance')} beyond {percent(_best(traded, present))}"
    )


def _not_enough(traded: Traded, chosen: Setting) -> Verdict:
    text = (
        f"{_named(traded, chosen)}: the most gain, and not enough: {_instead(traded, chosen)}, "
        f"and promised are {percent(PROMISED_SHARE)}"
    )
    most = max(each.instances for each in traded.outcomes)
    if chosen.instances == most:
        text += f"; --replicas {most} looks further"
    return Verdict(_kind(chosen, traded.base), text, chosen)


def _in_vain(traded: Traded) -> str:
    present = percent(traded.attained(traded.base))
    text = f"nothing gains: {present} keep their targets with any setting near"
    if traded.alone is not None and traded.alone < PROMISED_SHARE:
        return f"{text}, and alone {percent(traded.alone)}: a faster machine, or other targets"
    return f"{text}: see the p99 for what they miss"


def _instead(traded: Traded, chosen: Setting) -> str:
    new, now = percent(traded.attained(chosen)), percent(traded.attained(traded.base))
    return f"{new} keep their targets in place of {now}"


def _named(traded: Traded, setting: Setting) -> str:
    is_present = setting.batch_limit == traded.base.batch_limit
    other = "" if is_present else f" of batches of {setting.batch_limit}"
    return f"{counted(setting.instances, 'instance')}{other}"


def _unused(traded: Traded, setting: Setting) -> str:
    return f"{percent(traded.outcomes[setting].headroom.mean)} of what they can do is not used"


def _best(traded: Traded, instances: int) -> float:
    """Return the most that so many instances attain."""
    return max(traded.attained(each) for each in traded.outcomes if each.instances == instances)
