"""``headway advise``: whether batching is the right tool for a workload, and which mode pays."""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from headway.cli.machine import add_machine, load_simulated, simulated_from
from headway.cli.options import add_settings
from headway.cli.output import print_json, print_rows, print_warnings
from headway.cli.workload import add_workload, spec_from
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.planning.advice import Advice
    from headway.planning.advice_modes import ModeResult

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here
_WITHOUT = ("model.seed",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    group = parser.add_argument_group("advice")
    group.add_argument(
        "--hard", action="store_true", help="every single request has to keep its targets"
    )
    add_machine(parser)
    add_workload(parser)
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Simulate the modes, decide, and print."""
    from headway.planning.advice import advise
    from headway.profiles.watched import watched
    from headway.workload import build

    spec = spec_from(args)
    loaded = load_simulated(args)
    print_warnings(loaded.warnings)
    simulated = simulated_from(args, loaded.settings)
    cost, seen = watched(simulated.machine.cost)
    try:
        found = advise(replace(simulated.machine, cost=cost), build(spec), hard=args.hard)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if seen is not None and seen.warning:
        print_warnings([seen.warning])
    if args.json:
        print_json(_as_json(found))
    else:
        _print(found)
    return 0


def _print(found: Advice) -> None:
    print(f"{found.verdict}: {found.advice}\n")
    print_rows(
        [(each.case, "applies" if each.applies else "no", each.figure) for each in found.findings]
    )
    print()
    head = ("batching", "full tokens/s", "mean e2el s", "p99 e2el s", "p99 ttft s", "attained")
    print_rows([head, *(_row(mode, each) for mode, each in found.modes.items())])


def _row(mode: str, each: ModeResult) -> tuple[str, ...]:
    times = (each.full_throughput, each.mean_e2el_s, each.p99_e2el_s, each.p99_ttft_s)
    attained = "-" if each.attained is None else f"{each.attained:.1%}"
    return (mode, *(f"{value:.4g}" if isfinite(value) else "-" for value in times), attained)


def _as_json(found: Advice) -> dict[str, Any]:
    from dataclasses import asdict

    modes = {mode: asdict(each) for mode, each in found.modes.items()}
    return {
        "verdict": found.verdict,
        "advice": found.advice,
        "findings": [asdict(each) for each in found.findings],
        "modes": {
            mode: {key: _number(value) for key, value in each.items()}
            for mode, each in modes.items()
        },
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
