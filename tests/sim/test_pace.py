"""Steps one after the other, and steps that are planned while another runs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from random import Random

import pytest
import small_engine
from small_engine import limits

from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.scheduler import Scheduler
from headway.engine.journal import Journal, read_journal
from headway.engine.replay import replay
from headway.profiles.shape import StepShape
from headway.sim import SimulationResult, simulate
from headway.sim.step_log import observed_steps
from headway.workload import Arrival, drawn_between, poisson_arrivals

A_SECOND = StepCosts(base_s=1.0, prefill_token_s=0.0, decode_s=0.0)


def config(most: int = 2, **changes: object) -> SchedulerConfig:
    return SchedulerConfig(limits=limits(max_plans_in_flight=most, **changes))


def arrival(at_s: float = 0.0, output: int = 4) -> Arrival:
    return small_engine.arrival(at_s, output=output, max_tokens=output)


def times(result: SimulationResult) -> list[list[float]]:
    return [list(record.token_times) for record in result.requests]


def test_who_comes_during_a_step_is_in_the_second_one_after_it() -> None:
    """The next step was planned when this one began."""
    result = simulate(config(), [arrival(), arrival(at_s=0.5)], A_SECOND)
    assert times(result) == [[1, 2, 3, 4], [3, 4, 5, 6]]
    alone = simulate(config(1), [arrival(), arrival(at_s=0.5)], A_SECOND)
    assert times(alone) == [[1, 2, 3, 4], [2, 3, 4, 5]]


def test_a_slot_that_a_step_frees_is_taken_by_the_second_one_after_it() -> None:
    arrivals = [arrival(output=2), arrival(output=5), arrival(at_s=0.5)]
    result = simulate(config(max_num_seqs=2), arrivals, A_SECOND)
    assert times(result) == [[1, 2], [1, 2, 3, 4, 5], [4, 5, 6, 7]]


def test_a_step_that_ends_all_work_leaves_nothing_planned_behind() -> None:
    result = simulate(config(), [arrival(output=1), arrival(at_s=9.0, output=1)], A_SECOND)
    assert times(result) == [[1], [10]]
    assert list(result.steps.began_at) == [0, 9]


def test_host_time_is_hidden_while_it_is_shorter_than_a_step() -> None:
    arrivals = [arrival(output=5)]
    hidden = simulate(config(), arrivals, A_SECOND, host=lambda _: 0.4)
    assert times(hidden) == [pytest.approx([1.4, 2.4, 3.4, 4.4, 5.4])]
    longer = simulate(config(), arrivals, A_SECOND, host=lambda _: 3.0)
    assert times(longer)[0][-1] > 5.4 + 2
    exposed = simulate(config(1), arrivals, A_SECOND, host=lambda _: 0.4)
    assert times(exposed) == [pytest.approx([1.4, 2.8, 4.2, 5.6, 7.0])]


def test_host_time_may_depend_on_the_step() -> None:
    def of_prefills(shape: StepShape) -> float:
        return 0.5 * len(shape.chunks)

    result = simulate(config(1), [arrival()], A_SECOND, host=of_prefills)
    assert times(result) == [pytest.approx([1.5, 2.5, 3.5, 4.5])]


def crowded(
    most: int, journal: Journal | None = None, seed: int = 3, host_s: float = 0.01
) -> SimulationResult:
    lengths = drawn_between((4, 60), (1, 40), Random(seed))
    arrivals = poisson_arrivals(0.4, lengths, Random(seed + 1), duration_s=150.0)
    cost = StepCosts(base_s=0.5, prefill_token_s=0.01, decode_s=0.02)
    made = config(most, num_blocks=40, enable_prefix_sharing=True)
    return simulate(made, arrivals, cost, journal=journal, host=lambda _: host_s)


def test_steps_in_flight_never_overlap_on_the_device() -> None:
    steps = crowded(2).steps
    ends = [began + took for began, took in zip(steps.began_at, steps.elapsed_s, strict=True)]
    assert all(b >= e - 1e-9 for e, b in zip(ends, steps.began_at[1:], strict=False))


@pytest.mark.parametrize("most", [1, 2])
def test_its_journal_replays_and_tells_what_each_step_was(most: int, tmp_path: Path) -> None:
    stream = BytesIO()
    made = config(most, num_blocks=40, enable_prefix_sharing=True)
    result = crowded(most, Journal(stream, Scheduler(made)))
    assert sum(record.num_preemptions for record in result.requests) > 0
    assert all(record.is_finished for record in result.requests)
    path = tmp_path / "journal"
    path.write_bytes(stream.getvalue())
    report = replay(read_journal(path))
    assert (report.difference, report.num_plans) == (None, len(result.steps))
    steps = list(observed_steps(read_journal(path)))
    assert [step.seconds for step in steps] == list(result.steps.elapsed_s)
    assert [step.shape.num_tokens for step in steps] == list(result.steps.num_tokens)
    prefilled = [step.shape.num_prefill_tokens for step in steps]
    assert prefilled == list(result.steps.num_prefill_tokens)
    if most == 1:
        assert all(step.host_s == pytest.approx(0.01) for step in steps)


def test_more_is_served_when_the_host_works_beside_the_device() -> None:
    alone, beside = crowded(1, host_s=0.3), crowded(2, host_s=0.3)
    assert beside.end_s < alone.end_s
