"""Puts a load test over HTTP together: address, model, sender, session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.bench.discovery import find_model
from headway.bench.http_sender import HttpSender
from headway.bench.pool import Pool
from headway.bench.session import Options, Session
from headway.bench.target import Target, resolve
from headway.bench.wire import Dialect, Endpoint, PromptFormat
from headway.report import Report
from headway.report.report import Fact
from headway.workload import Content, WorkloadSpec


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
