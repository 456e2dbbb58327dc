"""``headway simulate``: a workload through the real scheduler, on a virtual clock."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.cli.machine import ROUTERS, Simulated, add_machine, load_simulated, simulated_from
from headway.cli.options import add_settings
from headway.cli.output import print_warnings
from headway.cli.reporting import add_output, write
from headway.cli.workload import add_workload, placed, spec_from
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.report import Report
    from headway.report.page import Table
    from headway.sim.fleet import FleetResult
    from headway.sim.intervals import Interval
    from headway.workload import WorkloadSpec

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)
_SHOWN = (
    "mean_ttft_ms",
    "p50_ttft_ms",
    "p90_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p50_tpot_ms",
    "p99_tpot_ms",
    "p99_itl_ms",
    "p50_e2el_ms",
    "p99_e2el_ms",
    "request_throughput",
    "output_throughput",
    "request_goodput",
    "attained",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    group = parser.add_argument_group("run")
    group.add_argument(
        "--replicas", type=int, metavar="N", default=1, help="engines behind a router (default: 1)"
    )
    group.add_argument(
        "--router",
        choices=ROUTERS,
        default="least-loaded",
        help="which engine gets a request (default: least-loaded)",
    )
    group.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        default=1,
        help="run so many times, with --seed and the numbers after it, and show 95 %% intervals",
    )
    group.add_argument("--until-s", type=float, metavar="S", help="end then, whoever still runs")
    add_machine(parser)
    add_workload(parser)
    add_output(parser)
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Simulate and report; 1 if no request was completed."""
    from headway.engine.garbage import collect_rarely

    _check(args)
    spec = spec_from(args)
    loaded = load_simulated(args)
    print_warnings(loaded.warnings)
    spec = placed(spec, loaded.settings)
    simulated = simulated_from(args, loaded.settings)
    collect_rarely()
    runs = []
    for number in range(args.seeds):
        if args.seeds > 1:
            print(f"headway: seed {spec.seed + number}", file=sys.stderr)
        runs.append(_run(args, replace(spec, seed=spec.seed + number), simulated))
    _write(args, runs)
    return 0 if any(each.report.overall.num_completed for each in runs) else 1


def _check(args: argparse.Namespace) -> None:
    for flag, value in (("--replicas", args.replicas), ("--seeds", args.seeds)):
        if value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}")
    if args.until_s is not None and not args.until_s > 0:
        raise UsageError(f"--until-s must be above 0, not {args.until_s:g}")


@dataclass(frozen=True, slots=True)
class _Run:
    """What came of one seed, and its JSON."""

    report: Report
    value: dict[str, Any]


def _run(args: argparse.Namespace, spec: WorkloadSpec, simulated: Simulated) -> _Run:
    from time import perf_counter

    from headway.profiles.watched import watched
    from headway.report import to_json
    from headway.sim.fleet import simulate_fleet
    from headway.sim.routers import RouterName, make_router
    from headway.workload import build

    machine = simulated.machine
    cost, seen = watched(machine.cost)
    limits = machine.config.limits
    router = make_router(
        RouterName(args.router),
        args.replicas,
        classes=machine.config.classes,
        num_kv_tokens=limits.num_blocks * limits.block_size,
    )
    workload = build(spec)
    began = perf_counter()
    result = simulate_fleet(
        simulated.replicas(args.replicas, cost, spec.seed),
        router,
        workload,
        until_s=float("inf") if args.until_s is None else args.until_s,
    )
    facts = _facts(args, spec, simulated, result, perf_counter() - began)
    warnings = [seen.warning] if seen is not None and seen.warning else []
    warnings += _stalled(result)
    report = _report(args, spec, simulated, result, facts, warnings)
    return _Run(report, to_json(report, detailed=args.detailed))


def _stalled(result: FleetResult) -> list[str]:
    conducts = (each.arrival.conduct for each in result.requests)
    if any(each is not None and each.stalls for each in conducts):
        return ["clients that stop reading change nothing in a simulation"]
    return []


def _report(
    args: argparse.Namespace,
    spec: WorkloadSpec,
    simulated: Simulated,
    result: FleetResult,
    facts: Mapping[str, Any],
    warnings: Sequence[str],
) -> Report:
    from headway.report import report_on
    from headway.sim.as_report import records_of

    number = f"{args.replicas} x " if args.replicas > 1 else ""
    return report_on(
        records_of(result.requests),
        result.end_s,
        spec.targets,
        title=args.title or f"{number}{simulated.name}, simulated",
        kind="simulate",
        facts=facts,
        warnings=warnings,
    )


def _facts(
    args: argparse.Namespace,
    spec: WorkloadSpec,
    simulated: Simulated,
    result: FleetResult,
    wall_s: float,
) -> dict[str, Any]:
    from headway import __version__

    limits = simulated.machine.config.limits
    series = [each.steps for each in result.replicas]
    busy_s = sum(sum(each.elapsed_s) for each in series)
    weighted = sum(each.mean_batch_size * sum(each.elapsed_s) for each in series)
    statistics = [each.statistics for each in result.replicas]
    return {
        "backend": "simulated",
        "model_id": simulated.name,
        "step_costs": simulated.source,
        "label": args.title,
        "workload": args.workload,
        "seed": spec.seed,
        "num_replicas": args.replicas,
        "router": args.router if args.replicas > 1 else None,
        "policy": simulated.machine.config.policy.name.value,
        "num_kv_blocks": limits.num_blocks,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "num_steps": sum(map(len, series)),
        "mean_batch_size": weighted / busy_s if busy_s else 0.0,
        "busy_share": busy_s / (result.end_s * len(series)) if result.end_s else 0.0,
        "num_preemptions": sum(each.num_preemptions for each in statistics),
        "num_cached_tokens": sum(each.num_cached_tokens for each in statistics),
        "wall_s": wall_s,
        "headway_version": __version__,
    }


# -------------------------------------------------------------------- several seeds


def _write(args: argparse.Namespace, runs: Sequence[_Run]) -> None:
    """Write the report of the first seed, with the intervals over all of them."""
    from headway.report import as_text, page, write_csv

    report, value = runs[0].report, runs[0].value
    sections = _intervals(runs) if len(runs) > 1 else {}
    if sections:
        value["num_seeds"] = len(runs)
        value["intervals"] = {
            name: {key: _interval_as_json(each) for key, each in found.items()}
            for name, found in sections.items()
        }
    tables = [
        (f"95 % intervals over {len(runs)} seeds: {name}", _table(found))
        for name, found in sections.items()
    ]
    write(
        args,
        value,
        text=lambda: "\n".join([as_text(report), *_lines(tables)]),
        page=lambda: page(report, tables),
        csv=lambda file: write_csv(report.records, file),
    )


def _lines(tables: Sequence[tuple[str, Table]]) -> Iterator[str]:
    from headway.report import aligned

    for title, (head, rows) in tables:
        yield from ("", title, *aligned([head, *rows]))


def _intervals(runs: Sequence[_Run]) -> dict[str, dict[str, Interval]]:
    """Return the intervals of all requests, and of each class if there are several."""
    from headway.sim.intervals import intervals

    found = {"all": intervals([each.value for each in runs], _SHOWN)}
    names = [name for name in runs[0].value["classes"] if len(runs[0].value["classes"]) > 1]
    for name in names:
        reports = [each.value["classes"].get(name, {}) for each in runs]
        found[name] = intervals(reports, _SHOWN)
    return found


def _interval_as_json(each: Interval) -> dict[str, float]:
    return {"mean": each.mean, "low": each.low, "high": each.high}


def _table(found: Mapping[str, Interval]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = ("figure", "mean", "low", "high")
    rows: list[tuple[str, ...]] = [
        (key, f"{each.mean:.4g}", f"{each.low:.4g}", f"{each.high:.4g}")
        for key, each in found.items()
    ]
    return head, rows
