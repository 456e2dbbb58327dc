"""``headway advise``: whether to batch, what batches and instances buy, and whether to isolate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.cli.machine import Simulated, add_machine, load_simulated, simulated_from
from headway.cli.options import add_settings
from headway.cli.output import print_json, print_warnings
from headway.cli.workload import add_workload, spec_from
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.planning.fleets import MakeMachines
    from headway.profiles.shape import StepCost
    from headway.workload import Workload, WorkloadSpec

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)
#: of a workload that is drawn, unless --seeds says otherwise
_SEEDS = 3


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
        help="serve workloads of so many seeds (default: 3, or 1 if nothing is drawn)",
    )
    add_machine(parser)
    add_workload(parser)
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Simulate, decide, and print."""
    from headway.engine.garbage import collect_rarely
    from headway.profiles.watched import watched

    _check(args)
    spec = spec_from(args)
    loaded = load_simulated(args)
    print_warnings(loaded.warnings)
    simulated = simulated_from(args, loaded.settings)
    collect_rarely()
    cost, seen = watched(simulated.machine.cost)
    answer = _trade if args.trade else _isolation if args.isolation else _batching
    try:
        answer(args, spec, simulated, cost)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if seen is not None and seen.warning:
        print_warnings([seen.warning])
    return 0


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


def _batching(
    args: argparse.Namespace, spec: WorkloadSpec, simulated: Simulated, cost: StepCost
) -> None:
    from headway.planning.advice import advise
    from headway.planning.advice_shown import advice_as_text, advice_to_json
    from headway.workload import build

    found = advise(replace(simulated.machine, cost=cost), build(spec), hard=args.hard)
    if args.json:
        print_json(advice_to_json(found))
    else:
        print(advice_as_text(found))


def _trade(
    args: argparse.Namespace, spec: WorkloadSpec, simulated: Simulated, cost: StepCost
) -> None:
    from headway.planning.trade import trade
    from headway.planning.trade_shown import trade_as_text, trade_to_json

    found = trade(
        _maker(simulated, cost),
        _workloads(args, spec, simulated),
        args.replicas or 1,
        window_s=args.window_s,
        tell=_tell,
    )
    print_warnings(found.left_out)
    if args.json:
        print_json(trade_to_json(found))
    else:
        print(trade_as_text(found))


def _isolation(
    args: argparse.Namespace, spec: WorkloadSpec, simulated: Simulated, cost: StepCost
) -> None:
    from headway.planning.isolation import isolate
    from headway.planning.isolation_shown import isolation_as_text, isolation_to_json

    found = isolate(
        _maker(simulated, cost),
        _workloads(args, spec, simulated),
        args.replicas or 1,
        tell=_tell,
    )
    if found.num_left_out:
        print_warnings([f"{found.num_left_out} divisions far from the work are left out"])
    if args.json:
        print_json(isolation_to_json(found))
    else:
        print(isolation_as_text(found))


def _maker(simulated: Simulated, cost: StepCost) -> MakeMachines:
    return lambda count, seed: simulated.replicas(count, cost, seed)


def _workloads(
    args: argparse.Namespace, spec: WorkloadSpec, simulated: Simulated
) -> Mapping[int, Workload]:
    """Return a workload for each seed."""
    from headway.workload import build

    first = build(spec)
    found = {spec.seed: first}
    if args.seeds == 1:
        return found
    for seed in range(spec.seed + 1, spec.seed + (args.seeds or _SEEDS)):
        found[seed] = build(replace(spec, seed=seed))
        is_drawn = simulated.interference is not None or found[seed].arrivals != first.arrivals
        if not is_drawn and args.seeds is not None:
            raise UsageError("--seeds: nothing is drawn, so that all seeds give the same")
        if not is_drawn:
            return {spec.seed: first}
    return found


def _tell(what: str) -> None:
    print(f"headway: {what}", file=sys.stderr)
