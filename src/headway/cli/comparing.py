"""What a comparison runs on: the executor in this process, or a simulated machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway.assembly import Bare, assemble_bare
from headway.cli.machine import Simulated, simulated_from, simulated_on
from headway.config import Settings
from headway.config.scheduling import scheduler_config
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.engine.clock import Clock, RealClock
from headway.engine.garbage import collect_rarely
from headway.models.progress import on_standard_error
from headway.profiles.builtin import LLAMA_7B
from headway.profiles.devices import find_device
from headway.profiles.model_shape import model_shape
from headway.profiles.profile import Profile
from headway.profiles.roofline import Roofline
from headway.profiles.watched import watched
from headway.report import Compared, Comparison
from headway.sim.comparison import LiveModes, ModeRun, simulated_run
from headway.sim.explained import explained
from headway.sim.requests import longest_of
from headway.sim.tally import TallyingExecutor
from headway.workload import Content, Workload
from headway.workload.content import ids_within

if TYPE_CHECKING:
    from headway.report.report import Fact
    from headway.sim.modes import Mode
    from headway.workload import WorkloadSpec

_A100 = "a100-80gb"

RunMode = Callable[[SchedulerConfig, Callable[[], bool]], ModeRun | None]


@dataclass(slots=True)
class Bench:
    """Where modes are run, one after the other.

    Attributes:
        name: of model and machine.
        facts: how it is measured.
        limits: memory and context, the same for all modes.
        run_mode: runs the workload by a scheduler; None if it was stopped, which a simulation is
            too short for.
        has_stated: whether the stated figures are of such a machine.
        warnings: reasons to trust it less, as they are found.
    """

    name: str
    facts: Mapping[str, Fact]
    limits: SchedulerLimits
    run_mode: RunMode
    has_stated: bool
    warnings: Callable[[], list[str]]

    def run(self, settings: Settings, stop: Callable[[], bool]) -> ModeRun | None:
        """Run the workload with these settings; None if it was stopped before its end."""
        return None if stop() else self.run_mode(self._config(settings), stop)

    def report(
        self,
        spec: WorkloadSpec,
        modes: Sequence[Mode],
        settings: Mapping[str, Settings],
        runs: Mapping[str, Sequence[ModeRun]],
        title: str | None = None,
    ) -> Comparison:
        """Return what came of the modes that were run."""
        rows = [
            self._row(each, settings[each.name], runs[each.name])
            for each in modes
            if each.name in runs
        ]
        return Comparison(
            title=title or f"{self.name}: one workload, batched in {len(rows)} ways",
            facts={**self.facts, **_facts(spec, rows)},
            rows=rows,
            warnings=[*self.warnings(), *_lost(rows)],
        )

    def _config(self, settings: Settings) -> SchedulerConfig:
        limits = self.limits
        return scheduler_config(
            settings,
            max_model_len=limits.max_model_len,
            num_blocks=limits.num_blocks,
            num_swap_blocks=limits.num_swap_blocks,
        )

    def _row(self, mode: Mode, settings: Settings, runs: Sequence[ModeRun]) -> Compared:
        stated = mode.stated
        return Compared(
            name=mode.name,
            title=mode.title,
            num_slots=settings.scheduler.max_num_seqs,
            runs=[_values(each) for each in runs],
            first=runs[0].figures,
            stated=(stated.tokens_per_s, stated.ms_per_token) if self.has_stated else None,
            note=explained(mode, runs[0]) if self.has_stated else "",
        )


def _values(run: ModeRun) -> dict[str, float | None]:
    found, latencies = run.figures, run.figures.latencies
    ttft, tpot, per_token_s = latencies.ttft, latencies.tpot, run.seconds_per_token
    return {
        "output_throughput": found.a_second(found.output_tokens),
        "ms_per_token": None if per_token_s is None else 1e3 * per_token_s,
        "mean_tpot_ms": None if tpot is None else 1e3 * tpot.mean,
        "p50_ttft_ms": None if ttft is None else 1e3 * ttft.p50,
        "p99_ttft_ms": None if ttft is None else 1e3 * ttft.p99,
        "mean_batch": run.tally.mean_batch,
        "padding_share": run.tally.padding_share,
        "attained": found.attained if _is_promised(run) else None,
        "duration_s": found.duration_s,
        "num_steps": run.tally.num_steps,
    }


def _is_promised(run: ModeRun) -> bool:
    return run.figures.targets is not None and run.figures.targets.are_any


def _facts(spec: WorkloadSpec, rows: Sequence[Compared]) -> dict[str, Fact]:
    from headway import __version__

    first = rows[0].first
    return {
        "seed": spec.seed,
        "num_requests": first.num_requests,
        "total_input_tokens": first.input_tokens,
        "total_output_tokens": first.output_tokens,
        "repetitions": max(len(each.runs) for each in rows),
        "headway_version": __version__,
    }


def _lost(rows: Sequence[Compared]) -> list[str]:
    """Say which modes did less than all, so that their figures are of other requests."""
    return [
        f"{each.title}: {each.first.num_completed} of {each.first.num_requests} requests "
        f"completed ({', '.join(each.first.errors) or 'unfinished'})"
        for each in rows
        if each.first.num_completed < each.first.num_requests
    ]


# -------------------------------------------------------------------- the executor in this process


def live_bench(settings: Settings, workload: Workload, seed: int) -> Bench:
    """Load the model of the settings."""
    bare = assemble_bare(settings, on_standard_error)
    collect_rarely()
    return bench_on(bare, RealClock(), workload, seed)


def bench_on(bare: Bare, clock: Clock, workload: Workload, seed: int) -> Bench:
    """Return a bench on a model that is loaded, warm.

    Raises:
        UsageError: a request is longer than the context.
    """
    longest_of(workload.arrivals, bare.config.limits)
    content = Content(seed, ids_within(bare.vocab_size))
    modes = LiveModes(
        TallyingExecutor(bare.executor),
        clock,
        vocab_size=bare.vocab_size,
        prompt_of=lambda number, arrival: content.token_ids(str(number), arrival),
    )
    modes.warm_up(bare.config)
    says_something = any(each.prompt is not None for each in workload.arrivals)
    return Bench(
        name=f"{bare.name} in this process",
        facts={"backend": "in this process", "model_id": bare.name},
        limits=bare.config.limits,
        run_mode=lambda config, stop: modes.run(config, workload.arrivals, workload.targets, stop),
        has_stated=False,
        warnings=lambda: [_MADE_UP] if says_something else [],
    )


_MADE_UP = "prompts are made up: of those in the file only about the length is taken"


# -------------------------------------------------------------------- simulated


def simulated_bench(args: argparse.Namespace, settings: Settings, workload: Workload) -> Bench:
    """Return the machine that flags say, or a 7B model on an A100."""
    is_builtin = args.profile is None and args.model_config is None
    simulated = _builtin(args, settings) if is_builtin else simulated_from(args, settings)
    cost, seen = watched(simulated.machine.cost)
    machine = simulated.machine
    num_plans = machine.config.limits.max_plans_in_flight

    def run(config: SchedulerConfig, _: Callable[[], bool]) -> ModeRun:
        limits = replace(config.limits, max_plans_in_flight=num_plans)
        (slowed,) = simulated.replicas(1, cost, seed=0)  # alike in each mode
        each = replace(slowed, config=replace(config, limits=limits))
        return simulated_run(each, workload.arrivals, workload.targets)

    return Bench(
        name=f"{simulated.name}, simulated",
        facts={
            "backend": "simulated",
            "model_id": simulated.name,
            "step_costs": simulated.source,
            "num_kv_blocks": machine.config.limits.num_blocks,
        },
        limits=machine.config.limits,
        run_mode=run,
        has_stated=_is_as_stated(args),
        warnings=lambda: [seen.warning] if seen is not None and seen.warning else [],
    )


def _is_as_stated(args: argparse.Namespace) -> bool:
    """Whether it is a 7B model in 16 bits on one A100."""
    has_own = args.profile or args.model_config or args.weights
    return not has_own and args.tensor_parallel == 1 and (args.device or _A100).startswith("a100")


def _builtin(args: argparse.Namespace, settings: Settings) -> Simulated:
    device, number = args.device or _A100, args.tensor_parallel
    shape = model_shape(LLAMA_7B, weights=args.weights)
    many = f"{number} x " if number > 1 else ""
    profile = Profile(
        name=f"a 7B model on {many}{device}",
        source="arithmetic on the data sheet (roofline)",
        device=Roofline(shape, find_device(device), num_devices=number),
    )
    context = settings.model.max_model_len or LLAMA_7B["max_position_embeddings"]
    assert isinstance(context, int), "a constant of ours"
    return simulated_on(profile, settings, context)
