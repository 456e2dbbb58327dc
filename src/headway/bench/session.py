"""A whole load test: warm-up, the workload or a ramp of it, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, isinf
from typing import TextIO

from headway.bench.clock import RealClock
from headway.bench.driver import Driver, Measurement
from headway.bench.health import Health, HealthMonitor
from headway.bench.job import Sender
from headway.bench.progress import Progress
from headway.bench.ramp import climb
from headway.report import RampStep, Report, figures, ramp_step, report_on
from headway.report.report import Fact
from headway.workload import (
    Arrival,
    ClosedLoop,
    Workload,
    WorkloadError,
    WorkloadSpec,
    build,
)

#: requests of a warm-up that run beside each other
_WARM_CONCURRENCY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a workload is run.

    Attributes:
        warmup: requests that are sent first and don't count.
        ramp: first rate and factor of a ramp to saturation; None runs the workload as it is.
        progress: where to show how far it is; None shows nothing.
        context: the longest sequence of the server in tokens, if it says so.
    """

    warmup: int = 0
    ramp: tuple[float, float] | None = None
    progress: TextIO | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    measurement: Measurement
    health: Health
    step: RampStep | None = None


class Session:
    """Runs one load test; :meth:`stop` ends it early, with what there is."""

    def __init__(self, spec: WorkloadSpec, sender: Sender, options: Options) -> None:
        self._spec = spec
        self._sender = sender
        self._options = options
        self._driver: Driver | None = None
        self._runs: list[_Run] = []
        self._was_stopped = False
        self._doubts: list[str] = []

    @property
    def was_stopped(self) -> bool:
        """Whether it was ended early."""
        return self._was_stopped

    def stop(self) -> None:
        """End it: nothing more is sent, what is under way is dropped, :meth:`run` returns."""
        self._was_stopped = True
        if self._driver is not None:
            self._driver.stop()

    async def run(self, title: str, facts: Mapping[str, Fact]) -> Report:
        """Run it and report.

        Raises:
            WorkloadError: it makes no requests, or has no rate that a ramp could raise.
        """
        await self._warm_up()
        if self._options.ramp is not None:
            return await self._ramp(title, facts)
        run = await self._measure(build(self._spec), "")
        return self._report(run, title, facts)

    async def _warm_up(self) -> None:
        count = self._options.warmup
        if not count or self._was_stopped:
            return
        requests = [replace(each, conduct=None) for each in _some(build(self._spec), count)]
        loop = ClosedLoop(_WARM_CONCURRENCY, 0.0, 0.0, iter(requests))
        self._driver = Driver(Workload((), (loop,), inf, {}), self._sender, RealClock(), "warm/")
        if not self._was_stopped:
            await self._driver.run()

    async def _measure(self, workload: Workload, name: str, label: str = "") -> _Run:
        self._doubts += _too_long(workload, self._options.context)
        clock = RealClock()
        driver = self._driver = Driver(workload, self._sender, clock, name)
        monitor = HealthMonitor()
        async with AsyncExitStack() as watching:
            if self._options.progress is not None:
                shown = Progress(driver, clock, self._options.progress, label)
                await watching.enter_async_context(shown)
            await watching.enter_async_context(monitor)
            measurement = await driver.run()
        return _Run(measurement, monitor.health())

    # ------------------------------------------------------------- ramp

    async def _ramp(self, title: str, facts: Mapping[str, Fact]) -> Report:
        assert self._options.ramp is not None, "only ramps get here"
        first_rate, factor = self._options.ramp
        targets = self._spec.targets
        climbed = await climb(self._at, first_rate, factor, by_goodput=bool(targets))
        if not self._runs:
            return report_on([], 0.0, targets, title=title, kind="bench", facts=facts)
        best = next((r for r in self._runs if r.step and r.step.request_rate == climbed.knee), None)
        chosen = best or self._runs[-1]
        assert chosen.step is not None, "runs of a ramp are its steps"
        told = {**facts, "request_rate": chosen.step.request_rate, "figures_of": "one step"}
        return self._report(chosen, title, told, climbed.steps, climbed.knee)

    async def _at(self, rate: float) -> RampStep | None:
        """Measure one step; each has requests of its own, or a prefix cache would know them."""
        if self._was_stopped:
            return None
        number = len(self._runs)
        spec = replace(at_total_rate(self._spec, rate), seed=self._spec.seed + number)
        run = await self._measure(build(spec), f"{number}/", f"{rate:.3g} requests/s, ")
        measured = figures(run.measurement.records, run.measurement.duration_s, self._spec.targets)
        step = ramp_step(rate, measured)
        self._runs.append(replace(run, step=step))
        return None if run.measurement.was_stopped else step

    # ------------------------------------------------------------- report

    def _report(
        self,
        run: _Run,
        title: str,
        facts: Mapping[str, Fact],
        ramp: Sequence[RampStep] = (),
        knee: float | None = None,
    ) -> Report:
        records, duration_s = run.measurement.records, run.measurement.duration_s
        report = report_on(
            records,
            duration_s,
            self._spec.targets,
            title=title,
            kind="bench",
            facts={**facts, "num_prompts": len(records)},
            ramp=ramp,
            knee=knee,
        )
        doubts = [*dict.fromkeys(self._doubts), *run.health.doubts(report.overall.latencies)]
        if self._was_stopped:
            doubts.insert(0, "stopped before its end: requests under way were dropped")
        return replace(report, warnings=doubts)


def at_total_rate(spec: WorkloadSpec, rate: float) -> WorkloadSpec:
    """Return the workload with the rates of all streams scaled so that they add up to ``rate``.

    Raises:
        WorkloadError: a stream has no finite rate.
    """
    rates = [stream.request_rate for stream in spec.streams]
    known = [each for each in rates if each is not None and not isinf(each)]
    if len(known) < len(rates):
        raise WorkloadError("a ramp needs a finite request_rate in each stream")
    factor = rate / sum(known)
    streams = tuple(
        replace(stream, request_rate=each * factor)
        for stream, each in zip(spec.streams, known, strict=True)
    )
    return replace(spec, streams=streams)


def _some(workload: Workload, count: int) -> list[Arrival]:
    """Return so many requests of a workload, of open and closed loops in turn."""
    loops = [islice(loop.requests, count) for loop in workload.loops]
    return [*workload.arrivals[:count], *(each for loop in loops for each in loop)][:count]


def _too_long(workload: Workload, context: int | None) -> list[str]:
    """Say how many requests of an open loop can't be served, whatever else happens."""
    if context is None:
        return []
    num_long = sum(
        each.prompt_tokens + (each.max_tokens or 1) > context for each in workload.arrivals
    )
    if not num_long:
        return []
    return [
        f"{num_long} of {len(workload.arrivals)} requests are longer than the model's context of "
        f"{context} tokens; max_prompt_tokens and max_output_tokens cut them"
    ]


def attains(report: Report, share: float) -> bool:
    """Whether each class that was promised anything met its targets so often."""
    judged = [each for each in report.classes.values() if each.targets is not None]
    return all(each.attained is not None and each.attained >= share for each in judged)
