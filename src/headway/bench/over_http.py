"""Puts a load test over HTTP together: address, model, sender, session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TextIO

from headway.bench.clock import RealClock
from headway.bench.discovery import find_model
from headway.bench.driver import Driver
from headway.bench.health import HealthMonitor
from headway.bench.http_sender import HttpSender
from headway.bench.pool import Pool
from headway.bench.progress import Progress
from headway.bench.session import Options, Session
from headway.bench.target import Target, resolve
from headway.bench.wire import Dialect, Endpoint, PromptFormat
from headway.report import Record, Report, figures
from headway.report.report import Fact
from headway.workload import ClosedLoop, Content, Workload, WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSetup:
    """Where requests go, and how they are written; see :class:`headway.bench.wire.Dialect`."""

    target: Target
    model: str | None = None
    endpoint: Endpoint = "completions"
    prompt_format: PromptFormat = "text"
    ignore_eos: bool = True
    class_header: str | None = None
    tenant_header: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0

    def dialect(self, model: str) -> Dialect:
        """Return how requests to a model are written."""
        return Dialect(
            target=self.target,
            model=model,
            endpoint=self.endpoint,
            prompt_format=self.prompt_format,
            ignore_eos=self.ignore_eos,
            class_header=self.class_header,
            tenant_header=self.tenant_header,
            headers=self.headers,
            extra=self.extra,
        )


async def bench_over_http(
    setup: HttpSetup,
    spec: WorkloadSpec,
    options: Options,
    facts: Mapping[str, Fact],
    on_session: Callable[[Session], None],
) -> Report:
    """Run a load test against a server and report.

    Args:
        setup: the server.
        spec: the workload.
        options: how it is run.
        facts: what else to report.
        on_session: told the session before it runs, to stop it.

    Raises:
        TargetError: the server can't be reached, or isn't what it should be.
        WorkloadError: the workload makes no requests.
    """
    pool = Pool(await resolve(setup.target))
    try:
        name, context = await find_model(pool, setup.target, setup.headers, setup.model)
        sender = HttpSender(pool, setup.dialect(name), Content(spec.seed), setup.timeout_s)
        session = Session(spec, sender, replace(options, context=context))
        on_session(session)
        report = await session.run(f"{name} at {setup.target.url}", {"model_id": name, **facts})
    finally:
        pool.close()
    if sender.num_uncounted:
        doubt = f"the server didn't count the tokens of {sender.num_uncounted} answers: pieces did"
        report = replace(report, warnings=[*report.warnings, doubt])
    return report


@dataclass(frozen=True, slots=True)
class Measured:
    """What a server made of a workload: the model's name there, records, and reasons to doubt."""

    model: str
    records: Sequence[Record]
    doubts: Sequence[str]


async def measure_over_http(
    setup: HttpSetup, workload: Workload, *, seed: int, warmup: int, progress: TextIO
) -> Measured:
    """Send a workload that is made already.

    Args:
        setup: the server.
        workload: what is sent.
        seed: of what made-up prompts say.
        warmup: requests that are sent first and don't count, one after the other.
        progress: where to show how far it is.

    Raises:
        TargetError: the server can't be reached, or isn't what it should be.
    """
    pool = Pool(await resolve(setup.target))
    try:
        name, _ = await find_model(pool, setup.target, setup.headers, setup.model)
        sender = HttpSender(pool, setup.dialect(name), Content(seed), setup.timeout_s)
        first = ClosedLoop(1, 0.0, 0.0, iter(workload.arrivals[:warmup]))
        await Driver(Workload((), (first,), inf, {}), sender, RealClock(), "warm/").run()
        clock = RealClock()
        driver, monitor = Driver(workload, sender, clock), HealthMonitor()
        async with Progress(driver, clock, progress), monitor:
            done = await driver.run()
    finally:
        pool.close()
    found = figures(done.records, done.duration_s, workload.targets)
    return Measured(name, done.records, list(monitor.health().doubts(found.latencies)))
