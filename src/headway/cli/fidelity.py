"""``headway fidelity``: how true the simulator is; each check ends with 1 beyond its bound."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from headway.cli import own
from headway.cli.output import print_json, print_rows
from headway.cli.replay import replay_and_report
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.sim.foreign import Row, RunVerdict, Setup

_TRACES = "HEADWAY_TRACES"
_BESIDE = Path("..", "shared", "traces")
_FOLDER = "llmservingsim"


class _CheckParser(argparse.ArgumentParser):
    """Parses what follows the name of a check."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the checks and their arguments."""
    checks = parser.add_subparsers(
        dest="check",
        metavar="CHECK",
        required=True,
        parser_class=_CheckParser,
        prog="headway fidelity",
    )
    _add_parity(checks)
    _add_foreign(checks)
    _add_own(checks)


def run(args: argparse.Namespace) -> int:
    """Run the check."""
    if args.check == "parity":
        return replay_and_report(Path(args.journal), as_json=args.json)
    if args.check == "own":
        return own.run(args)
    return _foreign(args)


def _add_parity(checks: argparse._SubParsersAction[_CheckParser]) -> None:
    what = "a journal of the real engine replays to the same plans"
    parser = checks.add_parser("parity", help=what, description=f"Checks that {what}.")
    parser.add_argument("journal", metavar="JOURNAL", help="file that `headway serve` wrote")
    _add_json(parser)


def _add_foreign(checks: argparse._SubParsersAction[_CheckParser]) -> None:
    what = "saved runs of another engine, replayed, come out as they were"
    parser = checks.add_parser("foreign", help=what, description=f"Checks that {what}.")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"folder of the saved runs (default: {_FOLDER} in ${_TRACES}, else in {_BESIDE})",
    )
    parser.add_argument("--run", metavar="NAME", help="only this run; default: all")
    _add_json(parser)


def _add_own(checks: argparse._SubParsersAction[_CheckParser]) -> None:
    what = "the engine on this machine comes out of its simulation as it was"
    parser = checks.add_parser("own", help=what, description=f"Checks that {what}.")
    own.configure(parser)
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    """Let ``--json`` stand behind the check as well; in front of it it was read already."""
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


# -------------------------------------------------------------------- foreign runs


def _foreign(args: argparse.Namespace) -> int:
    from headway.sim.foreign import judge

    setups = _chosen(args.run)
    folder = _folder(args.data)
    if folder is None:
        return _skip(args.json)
    verdicts: list[RunVerdict] = []
    for setup in setups:
        print(f"headway: replaying {setup.title}", file=sys.stderr)
        verdicts.append(judge(folder, setup))
        if not args.json:
            _print(verdicts[-1])
    if args.json:
        print_json({"runs": [_as_json(verdict) for verdict in verdicts]})
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _chosen(name: str | None) -> tuple[Setup, ...]:
    from headway.sim.foreign import SETUPS

    chosen = tuple(setup for setup in SETUPS if name in (None, setup.name))
    if not chosen:
        names = ", ".join(setup.name for setup in SETUPS)
        raise UsageError(f"no run is called {name}: there are {names}")
    return chosen


def _folder(given: str | None) -> Path | None:
    """Return the folder of the runs; None if it isn't where it is looked for unasked."""
    if given is not None:
        if not Path(given).is_dir():
            raise UsageError(f"--data: there is no folder {given}")
        return Path(given)
    folder = Path(os.environ.get(_TRACES) or _BESIDE) / _FOLDER
    return folder if folder.is_dir() else None


def _skip(as_json: bool) -> int:
    reason = (
        f"no saved runs in {Path(os.environ.get(_TRACES) or _BESIDE) / _FOLDER}: "
        f"name their folder with --data, or set {_TRACES}"
    )
    if as_json:
        print_json({"skipped": reason, "runs": []})
    else:
        print(f"skipped: {reason}")
    return 0


def _print(verdict: RunVerdict) -> None:
    print(f"\n{verdict.setup.title} ({verdict.setup.name})")
    header = ("figure", "unit", "real", "simulated", "error %", "bound %", "published %", "")
    print_rows([header, *map(_cells, verdict.rows)], indent="  ")
    worst = verdict.worst
    print(f"  worst of those with a bound: {worst.figure.key}, {worst.error:+.1f} %")
    replayed = verdict.replayed
    print(f"  steps beyond the measured kernels: {replayed.num_beyond} of {replayed.num_steps}")
    for each in verdict.controls:
        found = "caught" if each.is_caught else "NOT CAUGHT"
        what = f"{each.worst.figure.key} {each.worst.error:+.1f} %"
        print(f"  control, {each.what}: {found}, {what}")
    for line in verdict.setup.declared:
        print(f"  declared: {line}")


def _cells(row: Row) -> tuple[str, ...]:
    scale = row.figure.scale
    return (
        row.figure.key,
        row.figure.unit,
        f"{row.real * scale:.5g}",
        f"{row.simulated * scale:.5g}",
        f"{row.error:+.1f}",
        "-" if row.bound is None else f"{row.bound:g}",
        "-" if row.published is None else f"{row.published:+.1f}",
        "" if row.holds else "BEYOND",
    )


def _as_json(verdict: RunVerdict) -> dict[str, Any]:
    return {
        "name": verdict.setup.name,
        "title": verdict.setup.title,
        "holds": verdict.holds,
        "figures": {row.figure.key: _row_as_json(row) for row in verdict.rows},
        "num_steps": verdict.replayed.num_steps,
        "num_steps_beyond_measured": verdict.replayed.num_beyond,
        "controls": [
            {
                "what": each.what,
                "caught": each.is_caught,
                "figure": each.worst.figure.key,
                "error_percent": each.worst.error,
            }
            for each in verdict.controls
        ],
        "declared": verdict.setup.declared,
    }


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "real": row.real,
        "simulated": row.simulated,
        "error_percent": row.error,
        "bound_percent": row.bound,
        "published_percent": row.published,
        "holds": row.holds,
    }
