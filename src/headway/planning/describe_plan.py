"""Step 6 of a plan in words: what was simulated, what came of it, what else there is."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite
from statistics import median_high

from headway.planning.choices import Choice, counted, missed_of, strain
from headway.planning.describe import chance_said, milliseconds
from headway.planning.plan import AtLoad, Plan
from headway.planning.trial import Aim, AimResult, TrialResult
from headway.planning.trials import Terms
from headway.report import aligned

#: choices shown of each other number of instances
_SHOWN = 2


def verified(plan: Plan, terms: Terms) -> Iterator[str]:
    """Yield the lines of step 6, then headroom, what binds, and the next best choices."""
    yield "6 simulated with the scheduler that serves"
    yield from (f"  {each}" for each in plan.reasons)
    yield f"  {_verdict(plan, terms)}"
    yield from (f"  {each}" for each in aligned([_HEAD, *map(_row, _aims(plan))]))
    yield from _busy(plan.chosen.result)
    if plan.loads:
        yield "headroom"
        yield from (f"  {_at_load(each)}" for each in plan.loads)
    yield f"what binds: {plan.binding.what}: {plan.binding.why}"
    others = _next_best(plan)
    if others:
        yield "next best"
        rows = [_OTHERS_HEAD, *(_other(each, plan.chosen) for each in others)]
        yield from (f"  {each}" for each in aligned(rows))


def _aims(plan: Plan) -> list[AimResult]:
    """Return the targets in the order of the classes."""
    names = [each.name for each in plan.arithmetic.demand.classes]
    return sorted(plan.chosen.result.aims, key=lambda each: names.index(each.aim.class_name))


def _verdict(plan: Plan, terms: Terms) -> str:
    chance = plan.chosen.result.chance
    if plan.holds:
        return f"{plan.chosen.setup}: all targets hold on {chance_said(chance)}"
    return (
        f"nothing holds with a chance of {terms.promise:.0%} on at most "
        f"{counted(terms.most_instances, 'instance')}; the best: {plan.chosen.setup}, on "
        f"{chance_said(chance)}"
    )


_HEAD = ("target", "limit", "median day", "worst day", "margin", "held", "95 % interval")


def _row(found: AimResult) -> tuple[str, ...]:
    chance = found.chance
    low, high = chance.interval()
    figures = sorted(each for each in found.by_day if each is not None)
    return (
        aim_said(found.aim),
        milliseconds(found.aim.limit_s),
        shown(median_high(figures)) if figures else "-",
        shown(figures[-1]) if figures else "-",
        f"{1 - strain(found):.0%}" if strain(found) < inf else "none",
        f"{chance.held} of {chance.of}",
        f"{low:.1%} to {high:.1%}",
    )


def aim_said(aim: Aim) -> str:
    """Say what a target is of."""
    return f"{aim.class_name} {aim.metric.upper()} p{100 * aim.share:g}"


def shown(seconds: float) -> str:
    """Return a time; infinite where requests were not served."""
    return milliseconds(seconds) if isfinite(seconds) else "not served"


def _busy(result: TrialResult) -> Iterator[str]:
    load = result.load
    yield (
        f"  busy {load.busy_share:.0%} of the time, KV {load.kv_mean:.0%} used (at most "
        f"{load.kv_peak:.0%}), batch {load.slots_mean:.0%} filled (at most {load.slots_peak:.0%}), "
        f"{counted(load.num_preemptions, 'preemption')}, queue p99 "
        f"{milliseconds(load.queue_p99_s)} on the worst day, "
        f"{load.output_tokens_a_second:.4g} tokens/s"
    )


def _at_load(each: AtLoad) -> str:
    chance = each.result.chance
    missed = [aim_said(m.aim) for m in missed_of(each.result)]
    what = f"; missed: {', '.join(missed)}" if missed else ""
    return f"{each.factor:g} times the load: {chance.held} of {chance.of} days hold{what}"


def _next_best(plan: Plan) -> list[Choice]:
    """Return the choices with as many instances, and the best ones with one number less or more."""
    own = plan.chosen.setup.instances
    groups: dict[int, list[Choice]] = {}
    for each in plan.others:
        groups.setdefault(each.setup.instances, []).append(each)
    fewer = max((number for number in groups if number < own), default=None)
    more = min((number for number in groups if number > own), default=None)
    found = []
    for number in (fewer, own, more):
        if number is not None:
            group = groups.get(number, [])
            found += group if number == own else group[:_SHOWN]
    return found


_OTHERS_HEAD = ("instances", "sequences", "tokens a step", "days held", "worst of a limit", "costs")


def _other(each: Choice, chosen: Choice) -> tuple[str, ...]:
    chance, setup = each.result.chance, each.setup
    more = setup.instances - chosen.setup.instances
    return (
        str(setup.instances),
        str(setup.batch.num_seqs),
        str(setup.batch.budget),
        f"{chance.held} of {chance.of}",
        f"{each.risk:.0%}" if each.risk < inf else "not served",
        f"{'+' if more > 0 else '-'}{counted(abs(more), 'instance')}" if more else "the same",
    )
