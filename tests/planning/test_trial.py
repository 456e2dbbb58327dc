"""A trial: what a day is judged by, and what the engines were busy with."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.errors import UsageError
from headway.planning.trial import Aim, Candidate, figure_s, quantile_of, simulate_day, trial
from headway.profiles.interference import Interference
from headway.report import Outcome, Record
from headway.sim.replica import Machine
from headway.sim.routers import RouterName
from headway.workload import Arrival, Conduct, Targets, Workload

COST = StepCosts(base_s=0.01, prefill_token_s=0.0001, decode_s=0.0)


LIMITS = SchedulerLimits(
    num_blocks=100, block_size=16, max_model_len=1600, max_num_seqs=4, max_num_batched_tokens=256
)


def machine(limits: SchedulerLimits = LIMITS) -> Machine:
    return Machine(config=SchedulerConfig(limits=limits), cost=COST, sample_every_s=0.01)


def day(times: list[float], *, ttft_s: float = 1.0, conduct: Conduct | None = None) -> Workload:
    arrivals = [
        Arrival(at_s=at_s, prompt_tokens=100, output_tokens=11, conduct=conduct) for at_s in times
    ]
    return Workload(arrivals, (), 10.0, {"*": Targets(ttft_s=ttft_s, tpot_s=0.0101)})


def test_a_day_is_judged_by_the_quantile_of_each_target() -> None:
    alone = Candidate(machine(), 1)
    result = trial(alone, [day([0.0, 1.0, 2.0]), day([0.0, 0.001, 2.0])])
    ttft, tpot = result.aims
    assert (ttft.aim, tpot.aim) == (Aim("default", "ttft", 1.0), Aim("default", "tpot", 0.0101))
    assert ttft.by_day[0] == pytest.approx(0.02)  # 10 ms and 100 tokens
    assert tpot.by_day[0] == pytest.approx(0.01)
    # the second prompt is computed beside a decode of the first, which it makes wait
    assert tpot.by_day[1] == pytest.approx((0.01 * 9 + 0.02) / 10, rel=0.03)
    assert (ttft.chance.held, tpot.chance.held, result.chance.held) == (2, 1, 1)
    assert [each.holds for each in result.days] == [True, False]


def test_more_engines_hold_what_one_does_not() -> None:
    crowd = day([0.0] * 12, ttft_s=0.09)
    held = [trial(Candidate(machine(), n), [crowd]).aims[0].chance.held for n in (1, 2, 3)]
    assert held == sorted(held)
    assert held[0] == 0
    assert held[-1] == 1


def test_refused_and_expired_requests_took_for_ever() -> None:
    refusing = machine(replace(LIMITS, max_queue_requests=1))
    late = day([0.0] * 12)
    result = trial(Candidate(refusing, 1), [late])
    assert [each.by_day for each in result.aims] == [(inf,), (inf,)]
    assert result.chance.held == 0
    expiring = machine()
    classes = (ServiceClass(queue_timeout_s=0.001),)
    expiring = replace(expiring, config=replace(expiring.config, classes=classes))
    assert trial(Candidate(expiring, 1), [late]).aims[0].by_day == (inf,)


def test_clients_that_leave_are_not_judged() -> None:
    workload = day([0.0, 1.0], conduct=Conduct(leaves_after_tokens=2))
    result = trial(Candidate(machine(), 1), [workload])
    assert [each.by_day for each in result.aims] == [(None,), (None,)]
    assert result.chance.share == 1


def test_a_day_on_which_nobody_comes_holds() -> None:
    result = trial(Candidate(machine(), 2), [day([]), day([0.0])])
    assert result.days[0].holds
    assert (result.days[0].load.busy_share, result.days[0].load.output_tokens_a_second) == (0, 0)
    assert result.aims[0].by_day[0] is None
    assert result.chance.held == 2


def test_each_class_has_its_own_targets() -> None:
    classes = (ServiceClass(name="fast"), ServiceClass(name="slow"))
    both = machine()
    both = replace(both, config=replace(both.config, classes=classes))
    arrivals = [
        Arrival(
            at_s=float(n), prompt_tokens=100, output_tokens=3, class_name=("fast", "slow")[n % 2]
        )
        for n in range(6)
    ]
    targets = {"fast": Targets(ttft_s=0.001), "*": Targets(e2el_s=5.0)}
    only_slow = [each for each in arrivals if each.class_name == "slow"]
    days = [Workload(each, (), 10.0, targets) for each in (arrivals, only_slow)]
    fast, slow = trial(Candidate(both, 1), days).aims
    assert (fast.aim, slow.aim) == (Aim("fast", "ttft", 0.001), Aim("slow", "e2el", 5.0))
    assert fast.by_day[1] is None  # nobody came: nothing was broken
    assert (fast.chance.held, slow.chance.held) == (1, 2)
    with pytest.raises(UsageError, match="can't be isolated"):
        trial(Candidate(both, 1, RouterName.CLASS_ISOLATED), days)


def test_a_trial_ends_when_it_is_enough() -> None:
    days = [day([0.0], ttft_s=1e-6)] * 5
    result = trial(
        Candidate(machine(), 1), days, is_enough=lambda chance: chance.held < chance.of - 1
    )
    assert (result.chance.held, result.chance.of) == (0, 2)


def test_the_load_says_what_the_engines_did() -> None:
    workload = day([0.0, 0.0])
    one = simulate_day(Candidate(machine(), 1), workload).load
    two = simulate_day(Candidate(machine(), 2), workload).load
    # one step of both prompts, and ten with two decodes
    assert one.busy_share == pytest.approx(1.0)
    assert one.prompt_share == pytest.approx(0.03 / 0.13)
    assert two.prompt_share == pytest.approx(0.02 / 0.12)
    assert one.output_tokens_a_second == pytest.approx(22 / 0.13)
    assert (one.slots_peak, two.slots_peak) == (0.5, 0.25)
    assert one.kv_peak == pytest.approx(2 * two.kv_peak)
    assert one.kv_peak == pytest.approx(14 / 100)  # 100 and up to 11 positions in blocks of 16
    assert 0 < one.kv_mean <= one.kv_peak
    assert one.num_preemptions == 0
    small = machine(replace(LIMITS, num_blocks=14, max_model_len=112))
    tight = simulate_day(Candidate(small, 1), workload).load
    assert tight.kv_peak == pytest.approx(1.0)


def test_loads_of_days_are_put_together() -> None:
    candidate = Candidate(machine(), 1)
    loads = [each.load for each in trial(candidate, [day([0.0]), day([0.0] * 9)]).days]
    both = trial(candidate, [day([0.0]), day([0.0] * 9)]).load
    assert both.slots_peak == loads[1].slots_peak == 1.0
    assert both.queue_p99_s == loads[1].queue_p99_s > 0
    assert both.busy_share == pytest.approx(sum(each.busy_share for each in loads) / 2)


def test_interference_makes_days_slower_each_in_its_own_way() -> None:
    slow = Interference(0.05, [1.0] * 5 + [3.0] * 5)
    times = [0.1 * n for n in range(40)]
    calm = trial(Candidate(machine(), 1), [day(times)] * 3)
    disturbed = trial(Candidate(machine(), 1, interference=slow), [day(times)] * 3)
    assert len(set(calm.aims[1].by_day)) == 1
    assert len(set(disturbed.aims[1].by_day)) > 1
    (calm_s, *_) = calm.aims[1].by_day
    assert calm_s is not None
    assert all(each is not None and each > calm_s for each in disturbed.aims[1].by_day)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([inf], inf),
        ([1.0, inf], inf),
        ([1.0] * 99 + [inf], inf),  # the 99th percentile lies between the last two
        ([1.0] * 100 + [inf], 1.0),
        ([1.0, 2.0], pytest.approx(1.99)),
    ],
)
def test_quantiles_of_values_that_never_came(values: list[float], expected: float | None) -> None:
    assert quantile_of(values, 0.99) == expected


def test_an_answer_of_one_token_has_no_tpot_but_counts_if_it_failed() -> None:
    short = Record(due_s=0.0, output_tokens=1, outcome=Outcome.COMPLETED, ended_s=1.0)
    short.token_times.append(1.0)
    aim = Aim("default", "tpot", 1.0)
    assert figure_s([short], aim) is None
    assert figure_s([short, Record(due_s=0.0, outcome=Outcome.FAILED)], aim) == inf
