"""``headway fidelity own``: the engine on this machine, run while calibrated, and simulated."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from headway.cli.options import add_settings, load
from headway.cli.output import print_json, print_rows, print_warnings
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.assembly import Bare
    from headway.engine.clock import Clock
    from headway.sim.own import LoadVerdict, Row
    from headway.workload import Arrival

SECTIONS = ("model", "scheduler", "kv", "simulation")
_WITHOUT = ("model.seed",)
#: requests of the workload, of which a run takes as many as come in its time
_MOST_REQUESTS = 20_000
_ENOUGH = 100
_SCALES = {"ttft": (1e3, "ms"), "tpot": (1e3, "ms"), "outp": (1.0, "1/s")}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the check's arguments."""
    parser.add_argument(
        "--duration-s", type=float, metavar="S", default=90.0, help="of each run (default: 90)"
    )
    parser.add_argument(
        "--repetitions", type=int, metavar="N", default=5, help="how often (default: 5)"
    )
    parser.add_argument(
        "--share",
        type=float,
        action="append",
        metavar="X",
        help="load, as a share of saturation; may be repeated (default: 0.5 and 0.9)",
    )
    parser.add_argument(
        "--calibrate-s",
        type=float,
        metavar="S",
        default=20.0,
        help="of the calibration before each run, which fixes its rate (default: 20)",
    )
    parser.add_argument(
        "--prompt-tokens",
        metavar="TEXT",
        default="lognormal:50:0.8:300",
        help="lengths of prompts",
    )
    parser.add_argument(
        "--output-tokens", metavar="TEXT", default="lognormal:60:0.6:200", help="lengths of answers"
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="decides what is drawn")
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Run the check; 1 if a figure is beyond its bound."""
    _check(args)
    loaded = load(args)
    print_warnings(loaded.warnings)
    from headway.assembly import assemble_bare
    from headway.engine.clock import RealClock
    from headway.engine.garbage import collect_rarely
    from headway.models.progress import on_standard_error

    bare = assemble_bare(loaded.settings, on_standard_error)
    collect_rarely()
    return judge_and_report(args, bare, RealClock())


def judge_and_report(args: argparse.Namespace, bare: Bare, clock: Clock) -> int:
    """Judge a model that is loaded, and print the tables."""
    verdicts = _judge(args, bare, clock)
    if args.json:
        print_json({"loads": [_as_json(each) for each in verdicts]})
    else:
        for each in verdicts:
            _print(each)
    return 0 if all(row.holds for each in verdicts for row in each.rows) else 1


def _check(args: argparse.Namespace) -> None:
    for flag, value in (("--duration-s", args.duration_s), ("--calibrate-s", args.calibrate_s)):
        if not value > 0:
            raise UsageError(f"{flag} must be above 0, not {value:g}")
    if args.repetitions < 1:
        raise UsageError(f"--repetitions must be at least 1, not {args.repetitions}")
    for share in args.share or ():
        if not 0 < share < 1:
            raise UsageError(f"--share lies between 0 and 1, and is not {share:g}")


def _judge(args: argparse.Namespace, bare: Bare, clock: Clock) -> tuple[LoadVerdict, ...]:
    from headway.sim.own import judge
    from headway.sim.own_engine import OwnEngine
    from headway.sim.requests import longest_of

    engine = OwnEngine(
        bare.executor,
        bare.config,
        clock,
        name=bare.name,
        vocab_size=bare.vocab_size,
        longest=longest_of(_lengths(args, 0), bare.config.limits),
    )
    verdicts = judge(
        engine.config,
        lambda number: _lengths(args, number),
        calibrate=lambda: engine.calibrate(args.calibrate_s),
        measure=engine.measure,
        shares=args.share or (0.5, 0.9),
        repetitions=args.repetitions,
        duration_s=args.duration_s,
        tell=lambda line: print(f"headway: {line}", file=sys.stderr),
    )
    fewest = min(min(each.nums_requests) for each in verdicts)
    if fewest < _ENOUGH:
        print_warnings([f"{fewest} requests say little of p99: take more time"])
    return verdicts


def _lengths(args: argparse.Namespace, number: int) -> list[Arrival]:
    """Return the requests of a repetition: each has others."""
    from headway.workload import Stream, WorkloadSpec, build

    stream = Stream(
        request_rate=1.0,
        num_requests=_MOST_REQUESTS,
        prompt_tokens=args.prompt_tokens,
        output_tokens=args.output_tokens,
    )
    return list(build(WorkloadSpec(streams=(stream,), seed=1000 * args.seed + number)).arrivals)


def _print(verdict: LoadVerdict) -> None:
    rates, numbers = verdict.rates, verdict.nums_requests
    print(
        f"\n{100 * verdict.share:g} % of saturation: {min(rates):.3g} to {max(rates):.3g} "
        f"requests/s, {min(numbers)} to {max(numbers)} requests, medians of {len(rates)}"
    )
    header = (
        *("figure", "unit", "real", "from", "to", "simulated", "from", "to"),
        *("error %", "from", "to", ""),
    )
    print_rows([header, *map(_cells, verdict.rows)], indent="  ")


def _cells(row: Row) -> tuple[str, ...]:
    from statistics import median

    scale, unit = _SCALES[row.figure.key[:4]]
    values = [
        f"{scale * each:.4g}"
        for side in (row.real, row.simulated)
        for each in (median(side), min(side), max(side))
    ]
    return (
        row.figure.title,
        unit,
        *values,
        *(f"{each:+.1f}" for each in (row.error, min(row.errors), max(row.errors))),
        "" if row.holds else "BEYOND",
    )


def _as_json(verdict: LoadVerdict) -> dict[str, Any]:
    from headway.sim.own import BOUND

    return {
        "share": verdict.share,
        "request_rates": list(verdict.rates),
        "num_requests": list(verdict.nums_requests),
        "figures": {
            row.figure.key: {
                "real": list(row.real),
                "simulated": list(row.simulated),
                "error_percent": row.error,
                "errors_percent": row.errors,
                "spread_percent": row.spread,
                "bound_percent": BOUND,
                "holds": row.holds,
            }
            for row in verdict.rows
        },
    }
