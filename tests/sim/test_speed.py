"""Arrivals that come as fast as a machine can take them just then."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.engine.clock import VirtualClock
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.features import ObservedStep
from headway.profiles.shape import StepShape
from headway.sim.live import LiveEngine
from headway.sim.speed import MachineSpeed, Timetable
from headway.workload import Arrival


class Constant:
    def seconds(self, shape: StepShape) -> float:
        return 0.01


STEP = StepShape((), 1, 100, 100, 100)


def seen(*seconds: float) -> MachineSpeed:
    speed = MachineSpeed(Constant())
    for each in seconds:
        speed.see(ObservedStep(STEP, each))
    return speed


def test_the_last_half_second_counts() -> None:
    assert seen().slowness == 1.0
    assert seen(*[0.02] * 200).slowness == pytest.approx(2.0, rel=0.01)
    assert seen(*[0.02] * 200, *[0.01] * 400).slowness == pytest.approx(1.0, rel=0.01)
    assert 1.2 < seen(*[0.02] * 25).slowness < 1.8


def test_a_log_is_followed() -> None:
    log = [ObservedStep(STEP, 0.02)] * 3
    speed, other = MachineSpeed(Constant()), seen(0.02, 0.02, 0.02)
    speed.follow(log)
    speed.follow(log)
    assert speed.slowness == other.slowness, "each step once"
    log += [ObservedStep(STEP, 0.01)] * 2
    speed.follow(log)
    assert speed.slowness == seen(0.02, 0.02, 0.02, 0.01, 0.01).slowness


def test_what_is_usual_is_told_by_the_steps_that_are_given() -> None:
    usual = [ObservedStep(STEP, 0.02)] * 50
    speed = MachineSpeed(Constant(), usual)
    assert speed.slowness == 1.0
    speed.see(usual[0])
    assert speed.slowness == pytest.approx(1.0)
    speed.follow([ObservedStep(STEP, 0.03)] * 200)
    assert speed.slowness == pytest.approx(1.5, rel=0.01)


def test_a_pause_is_no_speed() -> None:
    assert seen(*[0.01] * 100, 1.0).slowness < 1.05


def test_without_costs_the_speed_is_the_usual_one() -> None:
    speed = MachineSpeed()
    speed.see(ObservedStep(STEP, 5.0))
    assert speed.slowness == 1.0


def test_at_the_usual_speed_moments_are_those_of_the_workload() -> None:
    timetable = Timetable(0.1, MachineSpeed())
    for now in (0.1, 0.7, 1.3):
        timetable.look(now)
        assert timetable.moment_of(0.2) == 0.1 + 0.2


def test_a_slower_machine_delays_what_has_not_passed() -> None:
    speed = MachineSpeed()
    timetable = Timetable(10.0, speed)
    speed.slowness = 2.0
    timetable.look(11.0)
    assert timetable.moment_of(0.5) == 10.5, "it came before the machine was slow"
    assert timetable.moment_of(1.5) == 12.0


@given(
    st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.3, 3.0)), min_size=1, max_size=20),
    st.lists(st.floats(0.0, 20.0), min_size=1, max_size=40),
)
def test_arrivals_keep_their_order_and_none_is_skipped(
    looks: list[tuple[float, float]], places: list[float]
) -> None:
    speed = MachineSpeed()
    timetable = Timetable(0.0, speed)
    waiting, moments, now, before = sorted(places), [0.0], 0.0, 0.0
    passed, usual = 0.0, 1.0
    for wait_s, slowness in looks:
        now += wait_s
        speed.slowness = slowness
        timetable.look(now)
        while waiting and (moment := timetable.moment_of(waiting[0])) <= now:
            timetable.pass_by(moment)
            moments.append(moment)
            assert moment >= before - 1e-9, "it came after the look before"
            waiting.pop(0)
        passed += wait_s / usual
        assert all(each >= passed - 1e-9 for each in waiting), "who is due has come"
        assert all(each <= passed + 1e-9 for each in places if each not in waiting)
        before, usual = now, slowness
    assert all(later >= one for one, later in pairwise(moments))


def test_requests_come_as_the_speed_allows_and_their_records_say_when() -> None:
    clock = VirtualClock()
    executor = SimulatedExecutor(Constant(), clock, num_blocks=64, block_size=16, vocab_size=100)
    limits = SchedulerLimits(
        num_blocks=64, block_size=16, max_model_len=256, max_num_seqs=8, max_num_batched_tokens=64
    )
    engine = LiveEngine(SchedulerConfig(limits=limits), executor, clock, vocab_size=100)
    clock.sleep(5.0)
    arrivals = [Arrival(at_s=float(n), prompt_tokens=5, output_tokens=3) for n in range(4)]
    speed = MachineSpeed()
    speed.slowness = 1.5
    records, steps = engine.begin(arrivals, speed)
    for _ in steps:
        pass
    assert [each.arrival.at_s for each in records] == pytest.approx([0.0, 1.5, 3.0, 4.5])
    assert [each.ttft_s for each in records] == pytest.approx([0.01] * 4)
    assert [each.at_s for each in arrivals] == [0.0, 1.0, 2.0, 3.0], "the workload is as it was"
