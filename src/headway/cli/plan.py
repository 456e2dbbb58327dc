"""``headway plan``: from targets to a configuration, and the chance that they hold."""

from __future__ import annotations

import argparse

from headway.cli.machine import add_machine
from headway.cli.options import add_settings
from headway.cli.output import print_warnings
from headway.cli.plan_machine import ground_of
from headway.cli.workload import add_workload, spec_from

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_machine(parser)
    add_workload(parser)
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Plan."""
    from headway.planning.arithmetic import work_out
    from headway.planning.demand import demand_of
    from headway.planning.describe import steps
    from headway.planning.step_time import EngineCost
    from headway.workload import build

    spec = spec_from(args)
    workload = build(spec)
    demand = demand_of(workload)
    ground = ground_of(args, workload)
    print_warnings(ground.loaded.warnings)
    machine = ground.simulated.machine
    found = work_out(demand, EngineCost(machine), machine.config.limits, ground.memory)
    for line in steps(found):
        print(line)
    return 0
