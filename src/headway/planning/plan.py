"""The whole procedure: from targets to a setup, with the chance that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.planning.alone import alone_p99
from headway.planning.arithmetic import Arithmetic
from headway.planning.batch import Batch
from headway.planning.binding import Binding, binding_of
from headway.planning.choices import Choice, Setup, missed_of
from headway.planning.demand import by_class
from headway.planning.louder import louder
from headway.planning.search import Search, batches_around
from headway.planning.trial import TrialResult
from headway.planning.trials import Trials
from headway.profiles.shape import StepCost
from headway.report.figures import promised
from headway.workload import Targets, Workload

#: what a class that was promised nothing may lag, as a share of the day
KEEPS_UP_SHARE = 0.1
_TIMES_ALONE = 2
#: times the planned load, tried to see how far the plan goes
LOADS = (1.25, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class AtLoad:
    """What comes of a plan at another load."""

    factor: float
    result: TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan.

    Attributes:
        arithmetic: steps 1 to 5.
        chosen: the cheapest setup that holds; without one, the best that was tried.
        holds: whether it does.
        reasons: why it is not what the arithmetic says; empty if it is.
        others: the next best choices.
        loads: what comes of it at higher loads, on few days.
        binding: what binds then.
    """

    arithmetic: Arithmetic
    chosen: Choice
    holds: bool
    reasons: Sequence[str]
    others: Sequence[Choice]
    loads: Sequence[AtLoad]
    binding: Binding


def judged_targets(workload: Workload, cost: StepCost, duration_s: float) -> Mapping[str, Targets]:
    """Return the targets by which days are judged.

    A class without any is to keep up: 99 in 100 of its requests are done within a tenth of the day,
    or twice the time that one takes alone where that is longer.
    """
    found = {}
    for name, group in by_class(workload).items():
        targets = promised(workload.targets, name)
        if targets is None or not targets.are_any:
            alone_s = alone_p99(cost, group)
            lag_s = max(KEEPS_UP_SHARE * duration_s, _TIMES_ALONE * alone_s)
            targets = Targets(e2el_s=lag_s)
        found[name] = targets
    return found


def make_plan(arithmetic: Arithmetic, cost: StepCost, trials: Trials) -> Plan:
    """Search, and see how far the result goes.

    Args:
        arithmetic: steps 1 to 5.
        cost: of a step, with the host's time.
        trials: tries setups.
    """
    batches = batches_around(arithmetic, cost)
    most_each = max(each.tokens_per_s for each in batches)
    least = max(int(arithmetic.instances.mean / most_each), 1)
    found = Search(trials, batches, least).run(arithmetic.instances.number)
    chosen = found or min(trials.choices, key=_goodness)
    loads = [_at(trials, chosen.setup, factor) for factor in LOADS] if found else []
    if found:
        _look_around(chosen.setup, batches, trials)
    return Plan(
        arithmetic=arithmetic,
        chosen=chosen,
        holds=found is not None,
        reasons=list(_reasons(arithmetic, chosen, trials)),
        others=_others(chosen, trials),
        loads=loads,
        binding=_binding(arithmetic, cost, chosen, loads),
    )


def _look_around(setup: Setup, batches: Sequence[Batch], trials: Trials) -> None:
    """Try the neighbours of a setup on a few days, as the next best choices."""
    trials.screen(replace(setup, instances=setup.instances + 1))
    for batch in batches:
        if batch != setup.batch:
            trials.screen(replace(setup, batch=batch))


def _goodness(choice: Choice) -> tuple[float, float, int]:
    return -choice.result.chance.share, choice.risk, choice.setup.instances


def _at(trials: Trials, setup: Setup, factor: float) -> AtLoad:
    return AtLoad(factor, trials.on(setup, louder(trials.screening_days, factor)))


def _others(chosen: Choice, trials: Trials) -> list[Choice]:
    """Return what else was tried, the cheapest first."""
    others = [each for each in trials.choices if each.setup != chosen.setup]
    return sorted(others, key=lambda each: (each.setup.instances, each.risk))


def _reasons(arithmetic: Arithmetic, chosen: Choice, trials: Trials) -> Iterator[str]:
    """Yield what changed from the arithmetic's answer, and what the trials say of that."""
    first = Setup(arithmetic.chosen, arithmetic.instances.number)
    if chosen.setup == first:
        return
    yield _tried(first, trials)
    before, after = first.instances, chosen.setup.instances
    if before != after:
        yield f"instances {'rise' if after > before else 'fall'} from {before} to {after}"
    own, other = first.batch, chosen.setup.batch
    if own.num_seqs != other.num_seqs:
        change = "rises" if other.num_seqs > own.num_seqs else "falls"
        yield f"the batch {change} from {own.num_seqs} to {other.num_seqs}"
    elif own.budget != other.budget:
        yield f"tokens in a step rise from {own.budget} to {other.budget}"
    if before != after and own != other:
        yield _tried(replace(first, instances=after), trials)


def _tried(setup: Setup, trials: Trials) -> str:
    """Say what became of a setup."""
    found = next((each for each in trials.choices if each.setup == setup), None)
    if found is None:
        return f"{setup}: more instances than are allowed"
    chance = found.result.chance
    aims = [each.aim for each in missed_of(found.result)]
    missed = ", ".join(f"{aim.metric.upper()} of {aim.class_name}" for aim in aims)
    what = f", missed: {missed}" if missed else ""
    return f"{setup}: {chance.held} of {chance.of} days hold{what}"


def _binding(
    arithmetic: Arithmetic, cost: StepCost, chosen: Choice, loads: Sequence[AtLoad]
) -> Binding:
    """Return what binds at the least load at which most days are lost."""
    tried = [chosen.result, *(each.result for each in loads)]
    lost = [each for each in tried if each.chance.share < 0.5] or tried[-1:]
    missed = missed_of(lost[0])
    most = chosen.setup.batch.num_seqs
    running = max(round(lost[0].load.slots_mean * most), 1)
    return binding_of(
        missed[0] if missed else None, lost[0].load, arithmetic.batch_of(running, cost), most
    )
