"""Replays a saved run: the scheduler that serves, set up as the other engine was."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits, VictimChoice
from headway.core.request import Request
from headway.errors import InvariantError
from headway.profiles.shape import StepCost
from headway.profiles.tables import KernelTables, read_kernel_tables
from headway.profiles.watched import Watched
from headway.sim.foreign.figures import Figures, figures
from headway.sim.foreign.saved import RunData
from headway.sim.foreign.setups import Setup
from headway.sim.records import SimulationResult
from headway.sim.report import values
from headway.sim.requests import VOCAB_SIZE, request_of
from headway.sim.simulation import simulate
from headway.workload import Arrival, WorkloadError

_RARELY_S = 1e6


class Replayed(NamedTuple):
    """What a replay gives: its figures, and how many steps lie beyond the measured kernels."""

    figures: Figures
    num_steps: int
    num_beyond: int


def replay(folder: Path, setup: Setup, data: RunData) -> Replayed:
    """Simulate a saved run.

    Raises:
        ProfileError: the measured kernels can't be read.
        WorkloadError: nobody knows how many KV blocks there were.
    """
    cost = Watched(kernels(folder, setup))
    found = simulated_figures(run(cost, setup, data))
    return Replayed(found, cost.num_steps, cost.num_beyond)


def kernels(folder: Path, setup: Setup) -> KernelTables:
    """Read the measured kernels of a setup."""
    return read_kernel_tables(
        folder / "profile" / setup.profile,
        setup.model,
        all_reduce=setup.all_reduce,
        with_skew=setup.with_skew,
        adds_parts=setup.adds_attention,
    )


def run(cost: StepCost, setup: Setup, data: RunData) -> SimulationResult:
    """Simulate a saved run."""
    prompts = make_prompts(data)

    def make_request(number: int, arrival: Arrival, max_model_len: int) -> Request:
        request = request_of(number, arrival, max_model_len)
        return dataclasses.replace(request, prompt_token_ids=prompts[number])

    return simulate(
        SchedulerConfig(limits=limits(setup, data)),
        data.arrivals,
        cost,
        make_request=make_request,
        sample_every_s=_RARELY_S,
    )


def limits(setup: Setup, data: RunData) -> SchedulerLimits:
    """Return the limits by which Headway's scheduler decides as vLLM's does.

    First come, first served; the newest gives way, as often as it takes, and is computed again;
    nobody passes whom lacks blocks; two steps are in flight. vLLM never uses one of its blocks.
    """
    num_blocks = setup.num_blocks or data.num_blocks
    if num_blocks is None:
        raise WorkloadError(f"{setup.name}: the run has not recorded its KV blocks")
    longest = max(each.prompt_tokens + each.output_tokens for each in data.arrivals)
    return SchedulerLimits(
        num_blocks=round(num_blocks * setup.block_factor) - 1,
        block_size=data.block_size,
        max_model_len=longest,
        max_num_seqs=data.max_num_seqs,
        max_num_batched_tokens=data.max_num_batched_tokens,
        max_passes=0,
        enable_prefix_sharing=setup.has_prefix_cache,
        preemption_victim=VictimChoice.NEWEST,
        max_preemptions=len(data.arrivals) * longest,
        max_plans_in_flight=2,
    )


def make_prompts(data: RunData) -> Sequence[tuple[int, ...]]:
    """Return prompts that begin alike where the real ones did, and differ in all else.

    A prompt's own part is one token over and over, which no other prompt has.
    """
    prompts: list[tuple[int, ...]] = []
    for number, arrival in enumerate(data.arrivals):
        other, num_blocks = data.shared.get(number, (0, 0))
        if num_blocks and other >= number:
            raise WorkloadError(f"request {number} can't share with {other}, which comes later")
        beginning = prompts[other][: num_blocks * data.block_size] if num_blocks else ()
        num_own = arrival.prompt_tokens - len(beginning)
        prompts.append(beginning + (VOCAB_SIZE + number,) * num_own)
    return prompts


def simulated_figures(result: SimulationResult) -> Figures:
    """Return the figures of a simulation in which every request ended well."""
    records = result.requests
    lost = [record for record in records if not record.is_finished]
    if lost:
        raise InvariantError(f"{len(lost)} requests did not end well: {lost[0].reason}")
    return figures(
        values(records, lambda record: record.ttft_s),
        values(records, lambda record: record.tpot_s),
        values(records, lambda record: record.latency_s),
        result.num_output_tokens / (result.end_s - records[0].arrival.at_s),
    )
