"""``headway advise``: whether to batch, what batches and instances buy, and whether to isolate."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.cli.machine import Simulated, add_machine, load_simulated, simulated_from
from headway.cli.options import add_settings
from headway.cli.output import print_warnings
from headway.cli.reporting import add_files, write
from headway.cli.workload import add_workload, spec_from
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.cli.advising import Answer
    from headway.workload import WorkloadSpec

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    group = parser.add_argument_group("advice")
    group.add_argument(
        "--hard", action="store_true", help="every single request has to keep its targets"
    )
    question = group.add_mutually_exclusive_group()
    question.add_argument(
        "--trade",
        action="store_true",
        help="what a larger batch and one more instance buy, at trough and peak",
    )
    question.add_argument(
        "--isolation",
        action="store_true",
        help="one pool for all classes, or one of its own for each",
    )
    group.add_argument(
        "--replicas", type=int, metavar="N", help="instances at present (default: 1)"
    )
    group.add_argument(
        "--window-s",
        type=float,
        metavar="S",
        help="length of trough and peak (default: a twelfth of the workload)",
    )
    group.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="choose with workloads of so many seeds, and check with as many others (default: 3; "
        "none if nothing is drawn)",
    )
    add_machine(parser)
    add_workload(parser)
    add_files(parser, "mode, setting or class of pools")
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Simulate, decide, and write the answer."""
    _check(args)
    spec = spec_from(args)
    loaded = load_simulated(args)
    print_warnings(loaded.warnings)
    _write(args, _answer(args, spec, simulated_from(args, loaded.settings)))
    return 0


def _answer(args: argparse.Namespace, spec: WorkloadSpec, simulated: Simulated) -> Answer:
    from headway.cli.advising import Question, on_batching, on_isolation, on_trade
    from headway.engine.garbage import collect_rarely
    from headway.profiles.watched import watched

    collect_rarely()
    cost, seen = watched(simulated.machine.cost)
    answer = on_trade if args.trade else on_isolation if args.isolation else on_batching
    try:
        found = answer(Question(args, spec, simulated, cost))
    except ValueError as error:
        raise UsageError(str(error)) from error
    extrapolated = [seen.warning] if seen is not None and seen.warning else []
    return replace(found, warnings=[*found.warnings, *extrapolated])


def _write(args: argparse.Namespace, answer: Answer) -> None:
    print_warnings(answer.warnings)
    write(
        args,
        {**answer.facts, **answer.value, "warnings": list(answer.warnings)},
        text=answer.text,
        page=lambda: answer.page(args.title or answer.title, answer.facts, answer.warnings),
        csv=answer.csv,
    )


def _check(args: argparse.Namespace) -> None:
    is_of_fleet = args.trade or args.isolation
    for flag, value in (("--replicas", args.replicas), ("--seeds", args.seeds)):
        if value is not None and not is_of_fleet:
            raise UsageError(f"{flag} goes with --trade or --isolation")
        if value is not None and value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}")
    if args.window_s is not None and not args.trade:
        raise UsageError("--window-s goes with --trade")
    if args.hard and is_of_fleet:
        raise UsageError("--hard is about one instance: leave it out with --trade and --isolation")
