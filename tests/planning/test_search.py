"""Step 6: the cheapest setup that holds, in few trials, on days that all have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.planning.arithmetic import Arithmetic, work_out
from headway.planning.batch import Batch
from headway.planning.chance import Chance
from headway.planning.choices import Choice, Setup
from headway.planning.demand import demand_of
from headway.planning.load import Load
from headway.planning.plan import Plan, judged_targets, make_plan
from headway.planning.search import Search, batches_around
from headway.planning.trial import Aim, Candidate, DayResult, TrialResult
from headway.planning.trials import Terms, Trials
from headway.sim.replica import Machine
from headway.workload import Stream, Targets, Workload, WorkloadError, WorkloadSpec, build

#: slow, so that few requests are a load
COST = StepCosts(base_s=0.08, prefill_token_s=0.001, decode_s=0.01)
LIMITS = SchedulerLimits(
    num_blocks=4000, block_size=16, max_model_len=2048, max_num_seqs=64, max_num_batched_tokens=1024
)


def machine_of(batch: Batch) -> Machine:
    limits = replace(LIMITS, max_num_seqs=batch.num_seqs, max_num_batched_tokens=batch.budget)
    return Machine(config=SchedulerConfig(limits=limits), cost=COST)


def spec(rate: float, **targets: float) -> WorkloadSpec:
    stream = Stream(request_rate=rate, prompt_tokens="uniform:50:150", output_tokens=8)
    return WorkloadSpec(streams=(stream,), duration_s=20.0, targets={"default": Targets(**targets)})


def arithmetic(asked: WorkloadSpec) -> Arithmetic:
    return work_out(demand_of(build(asked)), COST, LIMITS)


IDLE = Load(**dict.fromkeys(Load.__slots__, 0))


class Drawn:
    """Days of a spec, each of another seed."""

    num_recorded = inf

    def __init__(self, asked: WorkloadSpec) -> None:
        self._asked = asked

    def draw(self, count: int, seed: int) -> Iterator[Workload]:
        return (build(replace(self._asked, seed=1000 * seed + n)) for n in range(count))


def planned(asked: WorkloadSpec, most_instances: int = 64) -> tuple[Plan, Trials]:
    terms = Terms(num_days=4, num_screened=2, most_instances=most_instances)
    trials = Trials(Drawn(asked), terms, machine_of)
    return make_plan(arithmetic(asked), COST, trials), trials


# ------------------------------------------------------------- the search alone


class Known(Trials):
    """Knows what holds without a simulation, and counts what it is asked."""

    def __init__(self, enough: int, batch: int, terms: Terms) -> None:
        self.terms = terms
        self.asked: list[int] = []
        self._enough = enough
        self._batch = batch

    def screen(self, setup: Setup) -> Choice:
        return self._choice(setup, self.terms.num_screened)

    def judge(self, setup: Setup) -> Choice:
        return self._choice(setup, self.terms.num_days)

    def _choice(self, setup: Setup, count: int) -> Choice:
        self.asked.append(setup.instances)
        holds = setup.instances >= self._enough and setup.batch.num_seqs == self._batch
        aim = Aim("default", "ttft", 1.0)
        day = DayResult({aim: 0.5 if holds else 2.0}, IDLE)
        candidate = Candidate(machine_of(setup.batch), setup.instances)
        return Choice(setup, TrialResult(candidate, (day,) * count))


#: of four sizes
BATCHES = batches_around(arithmetic(spec(1, tpot_s=0.5)), COST)[:4]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 3))
def test_the_fewest_instances_that_hold_are_found(enough: int, first: int, which: int) -> None:
    trials = Known(enough, BATCHES[which].num_seqs, Terms(num_days=5, num_screened=2))
    best = Search(trials, BATCHES, 1).run(first)
    assert best is not None
    assert best.setup == Setup(BATCHES[which], enough)
    assert len(set(trials.asked)) <= 20  # numbers of instances, of 64


def test_nothing_is_found_where_nothing_holds() -> None:
    batches = batches_around(arithmetic(spec(1, tpot_s=0.5)), COST)
    trials = Known(9, batches[0].num_seqs, Terms(num_days=5, num_screened=2, most_instances=8))
    assert Search(trials, batches, 1).run(3) is None
    assert max(trials.asked) == 8


def test_batches_are_around_the_arithmetic_and_within_memory() -> None:
    found = arithmetic(spec(1, tpot_s=0.5))
    first, *others = batches_around(found, COST)
    assert first == found.chosen
    most = found.by_memory.num_seqs
    sizes = {each.num_seqs for each in others}
    assert sizes == {first.num_seqs // 2, min(2 * first.num_seqs, most), min(4 * first.num_seqs, most), first.num_seqs}  # fmt: skip # noqa: E501
    assert all(each.budget > each.num_seqs for each in others)


@given(st.floats(0.01, 0.99), st.integers(0, 60), st.integers(0, 60))
def test_a_promise_is_kept_only_if_the_share_is_as_large(
    promise: float, held: int, missed: int
) -> None:
    chance = Chance(held, held + missed)
    kept = Terms(promise=promise).holds(chance)
    if kept and missed:
        assert chance.share >= promise - 1e-9
    assert kept or missed


# ------------------------------------------------------------- with simulations


def test_a_plan_holds_and_says_how_far() -> None:
    plan, trials = planned(spec(1, ttft_s=3.0, tpot_s=0.4))
    assert plan.holds
    assert plan.chosen.result.chance.of == 4
    assert trials.terms.holds(plan.chosen.result.chance)
    assert plan.chosen.risk <= 1
    assert [each.factor for each in plan.loads] == [1.25, 1.5, 2.0]
    assert any(each.setup.instances == plan.chosen.setup.instances + 1 for each in plan.others)


def test_more_load_needs_more_instances() -> None:
    needed = []
    for rate in (2, 8):
        plan, _ = planned(spec(rate, ttft_s=3.0, tpot_s=0.4))
        assert plan.holds
        needed.append(plan.chosen.setup.instances)
    assert needed == sorted(needed)
    assert needed[-1] > 1


def test_an_overloaded_plan_says_so_and_names_what_binds() -> None:
    plan, _ = planned(spec(20, ttft_s=3.0, tpot_s=0.4), most_instances=1)
    assert not plan.holds
    assert plan.chosen.result.chance.held == 0
    assert plan.binding.what != "nothing"
    assert "more instances than are allowed" in plan.reasons[0]


def test_the_same_plan_twice() -> None:
    first, second = (planned(spec(2, ttft_s=3.0, tpot_s=0.4))[0] for _ in range(2))
    assert first == second


def test_a_class_without_targets_has_to_keep_up() -> None:
    asked = replace(spec(1), targets={})
    workload = build(asked)
    targets = judged_targets(workload, COST, 20.0)
    assert targets["default"].e2el_s == pytest.approx(2.0, abs=0.1)  # a tenth of the day
    plan, _ = planned(replace(asked, targets=targets))
    assert plan.holds
    lost, _ = planned(replace(spec(20), targets=targets), most_instances=1)
    assert not lost.holds


def test_days_with_a_class_of_which_nothing_is_known_are_refused() -> None:
    asked = spec(1, ttft_s=3.0)
    other = replace(asked, streams=(replace(asked.streams[0], class_name="other"),))
    with pytest.raises(WorkloadError, match="class other comes on some days"):
        Trials(Drawn(other), Terms(), machine_of)
