"""One workload through several ways to batch, against counts made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from headway.core.config import SchedulerConfig
from headway.core.limits import Batching, SchedulerLimits
from headway.engine.clock import VirtualClock
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.builtin import LLAMA_7B
from headway.profiles.devices import find_device
from headway.profiles.model_shape import model_shape
from headway.profiles.roofline import Roofline
from headway.profiles.shape import StepShape
from headway.sim.comparison import LiveModes, ModeRun, simulated_run
from headway.sim.explained import explained
from headway.sim.modes import MODES
from headway.sim.replica import Machine
from headway.sim.tally import TallyingExecutor
from headway.workload import Arrival

LIMITS = SchedulerLimits(
    num_blocks=500, block_size=16, max_model_len=1024, max_num_seqs=4, max_num_batched_tokens=512
)


class OneSecond:
    """Whatever a step computes takes a second."""

    def seconds(self, shape: StepShape) -> float:
        return 1.0 if shape.num_tokens else 0.0


def config(batching: Batching, slots: int = 4) -> SchedulerConfig:
    return SchedulerConfig(limits=replace(LIMITS, batching=batching, max_num_seqs=slots))


def crowd(*lengths: tuple[int, int]) -> list[Arrival]:
    """Requests that all come at once, of (prompt, answer)."""
    return [Arrival(at_s=0.0, prompt_tokens=p, output_tokens=n) for p, n in lengths]


def live() -> LiveModes:
    clock = VirtualClock()
    executor = SimulatedExecutor(
        OneSecond(), clock, num_blocks=LIMITS.num_blocks, block_size=16, vocab_size=100
    )
    return LiveModes(TallyingExecutor(executor), clock, vocab_size=100)


def simulated(made: SchedulerConfig, arrivals: Sequence[Arrival]) -> ModeRun:
    return simulated_run(Machine(config=made, cost=OneSecond()), arrivals, {})


def run_live(made: SchedulerConfig, arrivals: Sequence[Arrival]) -> ModeRun:
    found = live().run(made, arrivals, {})
    assert found is not None
    return found


Run = Callable[[SchedulerConfig, Sequence[Arrival]], ModeRun]
BOTH = pytest.mark.parametrize("run", [run_live, simulated])


@BOTH
def test_continuous_beats_static_by_what_the_longest_answers_cost(run: Run) -> None:
    arrivals = crowd(*[(10, 1), (10, 1), (10, 1), (10, 9)] * 4)
    static, continuous = (
        run(config(each), arrivals) for each in (Batching.STATIC, Batching.CONTINUOUS)
    )
    assert static.figures.duration_s == 4 * 9
    # long answers begin in steps 1, 3 and 4; then three short ones take turns in the fourth slot,
    # and the last long one begins in step 8
    assert continuous.figures.duration_s == 7 + 9
    assert static.figures.output_tokens == continuous.figures.output_tokens == 48
    assert static.seconds_per_token == continuous.seconds_per_token == 1.0


@BOTH
def test_padding_of_a_static_batch(run: Run) -> None:
    found = run(config(Batching.STATIC), crowd((10, 2), (20, 4), (20, 6), (20, 8)))
    # the prompts as four of the longest, then seven steps of all four slots
    computed, useful = 4 * 20 + 7 * 4, 70 + (1 + 3 + 5 + 7)
    assert (found.tally.num_positions, found.tally.num_useful) == (computed, useful)
    assert found.tally.padding_share == pytest.approx(1 - useful / computed)
    assert found.tally.num_steps == 8
    assert found.tally.mean_batch == pytest.approx((4 + 16) / 8)


@BOTH
def test_padding_of_a_dynamic_batch_is_in_its_prompts(run: Run) -> None:
    found = run(config(Batching.DYNAMIC), crowd((10, 1), (30, 3)))
    assert found.tally.num_positions - found.tally.num_useful == 20


@BOTH
@pytest.mark.parametrize("batching", [Batching.STATIC, Batching.CONTINUOUS])
def test_one_at_a_time(run: Run, batching: Batching) -> None:
    found = run(config(batching, slots=1), crowd((10, 3), (20, 5)))
    assert found.figures.duration_s == 8
    assert (found.tally.mean_batch, found.tally.padding_share) == (1.0, 0.0)
    assert found.figures.latencies.ttft is not None
    assert found.figures.latencies.ttft.values == [1.0, 4.0]


def test_one_executor_serves_schedulers_one_after_the_other() -> None:
    modes, arrivals = live(), crowd(*[(10, 2), (10, 7)] * 3)
    modes.warm_up(config(Batching.CONTINUOUS))
    first = modes.run(config(Batching.STATIC), arrivals, {})
    modes.run(config(Batching.CONTINUOUS), arrivals, {})
    again = modes.run(config(Batching.STATIC), arrivals, {})
    assert first is not None
    assert again is not None
    assert first.tally == again.tally
    assert first.figures == again.figures


def test_a_run_that_is_stopped_gives_nothing_and_leaves_nothing() -> None:
    modes, arrivals = live(), crowd((10, 50), (10, 50))
    answers = iter([False] * 5 + [True] * 5)
    assert modes.run(config(Batching.CONTINUOUS), arrivals, {}, lambda: next(answers)) is None
    after = modes.run(config(Batching.CONTINUOUS), arrivals, {})
    assert after is not None
    assert after.figures.num_completed == 2
    assert after.tally.num_steps == 50


# -------------------------------------------------------------------- why figures differ


def on_an_a100(slots: int, *lengths: tuple[int, int]) -> ModeRun:
    cost = Roofline(model_shape(LLAMA_7B), find_device("a100-80gb"))
    made = config(Batching.CONTINUOUS, slots)
    return simulated_run(Machine(config=made, cost=cost), crowd(*lengths), {})


def test_one_sequence_is_bound_by_the_weights() -> None:
    told = explained(MODES[0], on_an_a100(1, (16, 64)))
    assert told.startswith("no batching: ")
    assert "times the stated 15" in told
    assert "reading weights" in told.partition("on average: ")[2].partition(",")[0]
    assert "padding" not in told


def test_long_prompts_are_bound_by_multiplying() -> None:
    told = explained(MODES[0], on_an_a100(1, (500, 1), (500, 1)))
    assert "multiplying" in told.partition("on average: ")[2].partition(",")[0]


def test_figures_that_agree_are_told_so() -> None:
    run = on_an_a100(1, (16, 64))
    rate = run.figures.a_second(run.figures.output_tokens)
    step_ms = 1e3 * run.tally.busy_s / run.tally.num_steps
    stated = MODES[0].stated._replace(tokens_per_s=rate, ms_per_token=step_ms)
    told = explained(MODES[0]._replace(stated=stated), run)
    assert "about as much as the stated" in told
    assert told.endswith("a step as long as here.")


def test_stated_steps_that_no_such_device_can_do_are_told_so() -> None:
    run = on_an_a100(1, (16, 64))
    stated = MODES[0].stated._replace(tokens_per_s=1000, ms_per_token=1)
    told = explained(MODES[0]._replace(stated=stated), run)
    assert "of the stated 1,000" in told
    assert "less than the device takes" in told


def test_stated_times_are_batch_over_throughput() -> None:
    batches = [each.stated.batch for each in MODES]
    assert batches == pytest.approx([1, 8, 32, 8, 32, 32], rel=0.01)
