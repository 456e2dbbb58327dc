"""``headway replay``: a recorded journal through the scheduler; same plans, or the difference."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.output import print_json

if TYPE_CHECKING:
    from headway.engine.replay import Difference, ReplayReport

_SHOWN = 400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("journal", metavar="JOURNAL", help="file that `headway serve` wrote")


def run(args: argparse.Namespace) -> int:
    """Replay and report; 1 if a plan differs."""
    return replay_and_report(Path(args.journal), as_json=args.json)


def replay_and_report(journal: Path, *, as_json: bool) -> int:
    """Replay a journal and print whether the plans are the same; 1 if they are not."""
    from headway.engine.journal import read_journal
    from headway.engine.replay import replay

    report = replay(read_journal(journal))
    if as_json:
        print_json(_as_json(report))
    elif report.difference is None:
        print(f"same plans: {report.num_plans} plans after {report.num_stimuli} stimuli")
    else:
        _print(report.difference)
    return 0 if report.difference is None else 1


def _print(difference: Difference) -> None:
    print(f"first difference at journal line {difference.line}: {difference.what}")
    print(f"  recorded: {_short(difference.recorded)}")
    print(f"  replayed: {_short(difference.replayed)}")


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " …"


def _as_json(report: ReplayReport) -> dict[str, Any]:
    difference = report.difference
    return {
        "same": difference is None,
        "num_plans": report.num_plans,
        "num_stimuli": report.num_stimuli,
        "difference": None
        if difference is None
        else {
            "line": difference.line,
            "what": difference.what,
            "recorded": difference.recorded,
            "replayed": difference.replayed,
        },
    }
