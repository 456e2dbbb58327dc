"""``headway plan``: from targets to a configuration, and the chance that they hold."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.cli.machine import ROUTERS, add_machine, load_simulated
from headway.cli.options import add_settings
from headway.cli.output import print_warnings
from headway.cli.plan_machine import Ground, ground_of, promised_by_settings
from headway.cli.plan_output import report_plan, report_unmeetable
from headway.cli.plan_source import Source, source_from
from headway.cli.plan_verify import add_verify, check_without_verify, verify
from headway.cli.reporting import writable
from headway.cli.workload import add_workload
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.planning.demand import Demand
    from headway.planning.trials import Terms

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _add_plan(parser.add_argument_group("plan"))
    add_machine(parser)
    add_workload(parser)
    parser.add_argument(
        "--from-journal", metavar="FILE", help="what a server recorded, in place of a workload"
    )
    add_verify(parser)
    add_settings(parser, SECTIONS, _WITHOUT)


def _add_plan(group: argparse._ArgumentGroup) -> None:
    files = (("--write", "the settings there (TOML)"), ("--output", "the whole plan there (JSON)"))
    for flag, text in files:
        group.add_argument(flag, metavar="FILE", type=writable, help=f"write {text}")
    group.add_argument(
        "--promise",
        type=float,
        metavar="SHARE",
        help="chance that all targets hold on a day (default: 0.95)",
    )
    group.add_argument(
        "--days", type=int, metavar="N", help="on which the plan is judged (default: 40)"
    )
    group.add_argument(
        "--screening-days",
        type=int,
        metavar="N",
        help="on which each setup is looked at first, and higher loads (default: 4)",
    )
    group.add_argument("--max-instances", type=int, metavar="N", help="at most (default: 64)")
    group.add_argument(
        "--router",
        choices=ROUTERS,
        help="which instance gets a request (default: least-loaded)",
    )


def run(args: argparse.Namespace) -> int:
    """Plan, or test a plan; 1 if the targets can't be held, or were not."""
    if args.verify is not None:
        return verify(args)
    check_without_verify(args)
    return make(args)


def make(args: argparse.Namespace) -> int:
    """Make a plan."""
    from headway.engine.garbage import collect_rarely
    from headway.planning.alone import unmeetable
    from headway.planning.demand import demand_of
    from headway.planning.step_time import EngineCost
    from headway.sim.requests import longest_of

    terms = _terms(args)
    loaded = load_simulated(args)
    source = source_from(args, promised_by_settings(loaded.settings))
    demand = demand_of(source.workload, source.day_s)
    ground = ground_of(args, loaded, source.workload)
    print_warnings(ground.loaded.warnings)
    machine = ground.simulated.machine
    longest_of(source.workload.arrivals, machine.config.limits)
    lost = unmeetable(EngineCost(machine), source.workload)
    if lost:
        return report_unmeetable(args, ground.simulated.name, lost)
    collect_rarely()
    return _plan(args, ground, source, terms, demand)


def _plan(
    args: argparse.Namespace, ground: Ground, source: Source, terms: Terms, demand: Demand
) -> int:
    from headway.planning.arithmetic import work_out
    from headway.planning.doubt import doubts
    from headway.planning.plan import judged_targets, make_plan
    from headway.planning.step_time import EngineCost
    from headway.planning.trials import Trials
    from headway.sim.routers import RouterName

    machine = ground.simulated.machine
    cost, limits = EngineCost(machine), machine.config.limits
    found = work_out(demand, cost, limits, ground.memory, ground.most_seqs, ground.budget)
    router = RouterName(args.router or RouterName.LEAST_LOADED)
    days = source.days(judged_targets(source.workload, cost, demand.duration_s))
    warnings = list(doubts(days, terms))
    print_warnings(warnings)
    trials = Trials(
        days,
        terms,
        ground.machine_of,
        router=router,
        interference=ground.simulated.interference,
        tell=lambda line: print(f"headway: {line}", file=sys.stderr),
    )
    plan = make_plan(found, cost, trials)
    if ground.seen is not None and ground.seen.warning:
        print_warnings([ground.seen.warning])
        warnings.append(ground.seen.warning)
    report_plan(args, ground, source, plan, terms, router, warnings)
    return 0 if plan.holds else 1


def _terms(args: argparse.Namespace) -> Terms:
    from headway.planning.trials import Terms

    flags = {
        "promise": "promise",
        "days": "num_days",
        "screening_days": "num_screened",
        "max_instances": "most_instances",
        "seed": "seed",
    }
    given = {name: getattr(args, flag) for flag, name in flags.items()}
    for flag in ("days", "screening_days", "max_instances"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise UsageError(f"--{flag.replace('_', '-')} must be at least 1, not {value}")
    if args.promise is not None and not 0 < args.promise < 1:
        raise UsageError(f"--promise lies between 0 and 1, and is not {args.promise:g}")
    terms = Terms(**{name: value for name, value in given.items() if value is not None})
    return replace(terms, num_screened=min(terms.num_screened, terms.num_days))
