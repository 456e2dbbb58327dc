"""``headway bench``: load on an OpenAI-compatible server, or on the engine in this process."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from headway.cli.http_target import add_http, check_http, http_setup
from headway.cli.options import add_settings, load
from headway.cli.output import print_warnings
from headway.cli.reporting import add_output
from headway.cli.workload import add_workload, spec_from
from headway.config import all_settings
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.bench import Options
    from headway.bench.running import Work
    from headway.report import Report
    from headway.workload import WorkloadSpec

SECTIONS = ("model", "scheduler", "kv", "simulation", "journal")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)
_DEFAULT_URL = "http://127.0.0.1:8000"
INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "url", metavar="URL", nargs="?", help=f"the server; default: {_DEFAULT_URL}"
    )
    _add_target(parser.add_argument_group("server"))
    _add_run(parser.add_argument_group("run"))
    add_workload(parser)
    add_output(parser)
    add_settings(parser, SECTIONS, _WITHOUT)


def _add_target(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--offline",
        action="store_true",
        help="no server: the engine runs in this process, with the settings below",
    )
    add_http(group)
    group.add_argument(
        "--ignore-eos",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="answers go on to the length that the workload says (default: on)",
    )


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--warmup", type=int, metavar="N", default=0, help="requests sent first that don't count"
    )
    group.add_argument(
        "--ramp",
        metavar="RATE[:FACTOR]",
        help="raise the rate from here by the factor (default: 1.5) until nothing more comes out",
    )
    group.add_argument(
        "--require",
        type=float,
        metavar="SHARE",
        help="exit with 1 unless so large a share of each class met its targets",
    )


def run(args: argparse.Namespace) -> int:
    """Run the load test; 1 if nothing was completed, or the required share was not met."""
    _check(args)
    spec = spec_from(args, default_rate=None if args.ramp is None else 1.0)
    _check_required(args, spec)
    work = _offline(args, spec) if args.offline else _over_http(args, spec)
    from headway.bench.running import run_until_stopped

    return _told(args, *run_until_stopped(work))


def _check(args: argparse.Namespace) -> None:
    settings = [s.flag for s in all_settings() if s.key in vars(args) and s.flag != "--model"]
    if not args.offline and (settings or args.config is not None):
        given = settings[0] if settings else "--config"
        raise UsageError(f"{given} sets up an engine in this process: it goes with --offline")
    if args.offline and args.url is not None:
        raise UsageError("--offline needs no URL: leave out one")
    check_http(args)
    if args.warmup < 0:
        raise UsageError(f"--warmup must not be negative, not {args.warmup}")
    if args.require is not None and not 0 < args.require <= 1:
        raise UsageError(f"--require is a share between 0 and 1, not {args.require:g}")


def _check_required(args: argparse.Namespace, spec: WorkloadSpec) -> None:
    if args.require is not None and not any(each.are_any for each in spec.targets.values()):
        raise UsageError("--require needs targets: --goodput ttft:MS, or those of a workload file")


def _options(args: argparse.Namespace) -> Options:
    from headway.bench import Options

    ramp = None
    if args.ramp is not None:
        first, _, factor = args.ramp.partition(":")
        try:
            ramp = float(first), float(factor or 1.5)
        except ValueError:
            raise UsageError(f"--ramp {args.ramp}: use RATE or RATE:FACTOR") from None
    return Options(warmup=args.warmup, ramp=ramp, progress=sys.stderr)


def _over_http(args: argparse.Namespace, spec: WorkloadSpec) -> Work:
    from headway.bench.over_http import bench_over_http

    setup = http_setup(args, args.url or _DEFAULT_URL, ignore_eos=args.ignore_eos)
    options = _options(args)
    facts = _facts(args, spec, "openai-chat" if args.endpoint == "chat" else "openai")
    return lambda on_session: bench_over_http(setup, spec, options, facts, on_session)


def _offline(args: argparse.Namespace, spec: WorkloadSpec) -> Work:
    loaded = load(args)
    print_warnings(loaded.warnings)
    from headway.cli.offline import bench_offline

    options, facts = _options(args), _facts(args, spec, "offline")
    return lambda on_session: bench_offline(
        loaded.settings, spec, options, facts, on_session, ignore_eos=args.ignore_eos
    )


def _facts(args: argparse.Namespace, spec: WorkloadSpec, backend: str) -> dict[str, Any]:
    """Return what vLLM reports of a run, and what tells runs of ours apart."""
    from datetime import datetime

    from headway import __version__

    rates = [each.request_rate for each in spec.streams if each.request_rate is not None]
    clients = [each.concurrency for each in spec.streams if each.concurrency is not None]
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": backend,
        "backend": backend,
        "label": args.title,
        "tokenizer_id": None,
        "request_rate": _rate(sum(rates)) if rates else None,
        "burstiness": spec.streams[0].burstiness,
        "max_concurrency": sum(clients) if clients else None,
        "workload": args.workload,
        "seed": spec.seed,
        "ignore_eos": args.ignore_eos,
        "headway_version": __version__,
    }


def _rate(total: float) -> float | str:
    return "inf" if total == float("inf") else total  # as vLLM writes it: JSON has no infinity


def _told(args: argparse.Namespace, report: Report, was_stopped: bool) -> int:
    from dataclasses import replace

    from headway.bench import attains
    from headway.cli.reporting import write_report

    if args.title is not None:
        report = replace(report, title=args.title)
    write_report(args, report)
    if was_stopped:
        return INTERRUPTED
    is_met = args.require is None or attains(report, args.require)
    return 0 if report.overall.num_completed and is_met else 1
