"""``headway calibrate``: measures what the steps of the engine cost, and writes a profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.options import add_model_argument, add_settings, load
from headway.cli.output import print_json, print_rows, print_warnings
from headway.cli.reporting import writable
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.assembly import Bare
    from headway.config import Settings
    from headway.engine.clock import Clock
    from headway.profiles.fitted import FittedCosts
    from headway.sim.calibration import Calibration

SECTIONS = ("model", "scheduler", "kv", "simulation")
_UNITS = {
    "step": "a step",
    "prefill_tokens": "a token of a prompt",
    "prefill_pairs": "a pair of positions, in prompts",
    "decodes": "a decoding sequence",
    "rows_above_8": "a row beyond 8",
    "rows_above_12": "a row beyond 12",
    "rows_above_32": "a row beyond 32",
    "rows_above_64": "a row beyond 64",
    "rows_above_128": "a row beyond 128",
    "decode_context": "a position that a decode reads",
    "mixed": "a step with both",
    "swapped_blocks": "a block swapped",
    "sequences": "a sequence, on the host",
    "chunks": "a prompt's part, on the host",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_model_argument(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=writable,
        default="profile.json",
        help="the profile (profile.json)",
    )
    parser.add_argument(
        "--most-s", type=float, metavar="S", default=60.0, help="how long (default: 60)"
    )
    parser.add_argument(
        "--longest", type=int, metavar="N", default=1024, help="longest sequence (default: 1024)"
    )
    parser.add_argument(
        "--from-journal",
        metavar="FILE",
        help="no run: fit to the steps of a journal, as headway serve writes it",
    )
    add_settings(parser, SECTIONS)


def run(args: argparse.Namespace) -> int:
    """Measure, fit and write."""
    from headway.profiles.profile import write_profile

    if not args.most_s > 0 or args.longest < 2:
        raise UsageError("--most-s must be above 0, and --longest at least 2")
    loaded = load(args)
    if args.from_journal is not None:
        calibration = _from_journal(Path(args.from_journal), loaded.settings)
    else:
        print_warnings(loaded.warnings)
        calibration = _measured(args, loaded.settings)
    write_profile(Path(args.output), calibration.profile)
    if args.json:
        print_json(_as_json(calibration, args.output))
    else:
        _print(calibration, args.output)
    return 0


def _measured(args: argparse.Namespace, settings: Settings) -> Calibration:
    from headway.assembly import assemble_bare, machine_name
    from headway.engine.clock import RealClock
    from headway.engine.garbage import collect_rarely
    from headway.models.progress import on_standard_error

    bare = assemble_bare(settings, on_standard_error)
    collect_rarely()
    name = machine_name(bare.name, settings)
    return calibrate_bare(bare, RealClock(), name, most_s=args.most_s, longest=args.longest)


def calibrate_bare(
    bare: Bare, clock: Clock, name: str, *, most_s: float, longest: int
) -> Calibration:
    """Calibrate a model that is loaded."""
    from headway.sim.calibration import calibrate
    from headway.sim.live import LiveEngine

    limits = bare.config.limits
    engine = LiveEngine(bare.config, bare.executor, clock, vocab_size=bare.vocab_size)
    return calibrate(
        engine,
        limits,
        name=name,
        most_s=most_s,
        longest=min(longest, limits.longest),
        tell=lambda line: print(f"headway: calibrating: {line}", file=sys.stderr),
    )


def _from_journal(path: Path, settings: Settings) -> Calibration:
    from headway.assembly import machine_name
    from headway.engine.journal import read_journal
    from headway.sim.calibration import Calibration, profile_of
    from headway.sim.step_log import observed_steps

    steps = list(observed_steps(read_journal(path)))
    seconds = sum(each.seconds + each.host_s for each in steps)
    source = f"fitted to {len(steps)} steps of a journal"
    profile = profile_of(steps, machine_name(settings.model.path, settings), source)
    return Calibration(profile, len(steps), seconds, is_complete=True)


def _print(calibration: Calibration, path: str) -> None:
    from headway.profiles.fitted import FittedCosts

    profile = calibration.profile
    print(f"{profile.name}: {profile.source}")
    if not calibration.is_complete:
        print("the time was over before the finest grid was run: take more, or trust it less")
    for side, costs in (("device", profile.device), ("host", profile.host)):
        if isinstance(costs, FittedCosts):
            print()
            print_rows(_rows(side, costs))
    print(f"\nwritten to {path}")


def _rows(side: str, costs: FittedCosts) -> list[tuple[str, ...]]:
    error = costs.error
    rows = [
        (side, "microseconds", "least", "most"),
        *(
            (_UNITS[name], f"{1e6 * costs.costs_s.get(name, 0.0):.4g}", f"{low:g}", f"{high:g}")
            for name, (low, high) in costs.ranges.items()
        ),
    ]
    said = f"error on {error.num_steps} steps held out: half below {100 * error.median:.1f} %"
    return [*rows, (f"{said}, nine in ten below {100 * error.p90:.1f} %", "", "", "")]


def _as_json(calibration: Calibration, path: str) -> dict[str, Any]:
    from headway.profiles.profile import profile_as_json

    return {
        "profile": profile_as_json(calibration.profile),
        "path": path,
        "num_steps": calibration.num_steps,
        "seconds": calibration.seconds,
        "complete": calibration.is_complete,
    }
