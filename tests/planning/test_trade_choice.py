"""Which setting is named: the most welcome one that keeps the promise with other seeds too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, isnan

import pytest

from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.planning.trade import trade
from headway.planning.trade_found import Outcome, Setting, Traded
from headway.planning.trade_run import Measured
from headway.planning.trade_verdict import decide
from headway.planning.trade_windows import Window
from headway.sim.replica import Machine
from headway.workload import Arrival, Targets, Workload

ONE, TWO, THREE = Setting(1, 8), Setting(2, 8), Setting(3, 8)
FINE = Measured(100.0, 0.1, 0.02, 1.0, 4.0, 0.5)


def traded(
    attained: Mapping[Setting, float], checked: Mapping[Setting, float], **changes: float
) -> Traded:
    outcomes = {
        setting: Outcome(setting, 200.0, (replace(FINE, attained=share, **changes),))
        for setting, share in attained.items()
    }
    return Traded(Window("peak", 0, 10, 50), ONE, outcomes, checked, alone=None)


def test_a_setting_that_other_seeds_refute_is_not_named() -> None:
    attained = {ONE: 0.5, TWO: 0.995, THREE: 1.0}
    assert decide(traded(attained, {})).setting == TWO
    chosen = decide(traded(attained, {TWO: 0.97, THREE: 1.0}))
    assert chosen.setting == THREE
    assert "no other batch limit" in chosen.advice


def test_if_other_seeds_refute_all_their_figures_are_said() -> None:
    chosen = decide(traded({ONE: 0.5, TWO: 0.995}, {TWO: 0.97}))
    assert (chosen.verdict, chosen.setting) == ("scale", TWO)
    assert "not enough: 97.0 % keep their targets in place of 50.0 %" in chosen.advice


def test_a_gain_that_is_worth_it_is_named_whatever_less_is_beside_it() -> None:
    chosen = decide(traded({ONE: 0.5, TWO: 0.506, THREE: 0.515}, {}))
    assert (chosen.verdict, chosen.setting) == ("scale", THREE)
    near = decide(traded({ONE: 0.5, TWO: 0.596, THREE: 0.6}, {}))
    assert near.setting == TWO
    assert decide(traded({ONE: 0.5, TWO: 0.506}, {})).verdict == "nothing"


def test_fewer_instances_are_more_welcome_then_limits_near_the_present() -> None:
    near, far = Setting(1, 16), Setting(1, 32)
    assert traded({TWO: 1, far: 1, near: 1, ONE: 1}, {}).keepers() == [ONE, near, far, TWO]


def test_what_was_not_measured_is_no_gain() -> None:
    gain = traded({ONE: 1, TWO: 1}, {}, p99_tpot_s=inf).gain(TWO)
    assert isnan(gain.p99_tpot)
    assert gain.p99_ttft == 1


# -------------------------------------------------------------------- with a simulation


def machine() -> Machine:
    limits = SchedulerLimits(
        num_blocks=500,
        block_size=16,
        max_model_len=1024,
        max_num_seqs=2,
        max_num_batched_tokens=512,
    )
    costs = StepCosts(base_s=0.02, prefill_token_s=0.0001, decode_s=0.002)
    return Machine(config=SchedulerConfig(limits=limits, costs=costs), cost=costs)


def load(times: list[float], output: int = 5) -> Workload:
    arrivals = [
        Arrival(at_s=each, prompt_tokens=100, output_tokens=output, max_tokens=output)
        for each in sorted(times)
    ]
    return Workload(arrivals, (), inf, {"*": Targets(ttft_s=0.1)})


def make(count: int, seed: int) -> list[Machine]:
    return [machine()] * count


def every(gap_s: float, begin_s: float, end_s: float) -> list[float]:
    return [begin_s + n * gap_s for n in range(round((end_s - begin_s) / gap_s))]


def test_seeds_that_check_are_served_and_may_refute() -> None:
    calm, crowded = load(every(0.5, 0, 20)), load(every(0.05, 0, 20))
    found = trade(make, {0: calm}, 1, others={1: calm})
    (steady,) = found.windows
    assert (dict(steady.checked), found.num_others) == ({Setting(1, 2): 1.0}, 1)
    (refuted,) = trade(make, {0: calm}, 1, others={1: crowded}).windows
    assert refuted.checked[Setting(1, 2)] < 0.9
    assert decide(refuted).setting != Setting(1, 2)


def test_alone_is_of_the_requests_of_the_window_and_a_seed_may_have_none() -> None:
    # nobody comes with the first seed while, with the second, 30 come at once
    night = load([*every(0.5, 0, 10), *every(0.05, 40, 50)])
    crowd = load([*every(0.5, 0, 10), *[25.0] * 12, *every(0.05, 40, 50)])
    for window in trade(make, {0: night, 1: crowd}, 1, others={}, window_s=10.0).windows:
        assert window.alone in {None, 1.0}


def test_targets_of_a_class_that_nobody_has_promise_nothing() -> None:
    stray = replace(load(every(0.5, 0, 20)), targets={"other": Targets(ttft_s=0.1)})
    with pytest.raises(ValueError, match="nothing is promised to default"):
        trade(make, {0: stray}, 1, others={})


def test_a_seed_without_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="no requests come"):
        trade(make, {0: load(every(0.5, 0, 20)), 1: load([])}, 1, others={})
