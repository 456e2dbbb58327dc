"""The command: parses what is asked, runs it model by model, prints the table, writes the JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers import accuracy, report
from benchmarks.peers.cases import Case, cases_of
from benchmarks.peers.engines import HEADWAY, PEERS
from benchmarks.peers.explored import EXPLORED
from benchmarks.peers.lineup import engines_of
from benchmarks.peers.machine import ForkJoin, description
from benchmarks.peers.places import RESULTS
from benchmarks.peers.results import ShapeResult, plain_row, rows
from benchmarks.peers.shapes import SHAPES, Shape
from benchmarks.peers.turns import Turns, started

_QUICK_CASES = ("mix-1", "mix-8", "prefill-8x128")


def main(description_of_command: str) -> int:
    """Return the exit status."""
    arguments = _arguments(description_of_command)
    path: Path = arguments.json
    fork_join = ForkJoin()
    machine = description()
    results: list[tuple[ShapeResult, Sequence[Case]]] = []
    for shape in arguments.models:
        cases = _cases(shape, arguments)
        result = ShapeResult(name=shape.name, label=shape.label)
        results.append((result, cases))
        specs = engines_of(shape, arguments.peers, http=arguments.http)
        if arguments.explore:
            specs = tuple(spec for spec in EXPLORED if spec.peer in arguments.peers)
        if arguments.engines:
            specs = tuple(spec for spec in specs if spec.name in arguments.engines)
        with started(shape, specs, result, _progress) as workers:
            turns = Turns(result, shape, workers, fork_join.nanoseconds, _progress)
            turns.prime(cases)
            for number in range(arguments.rounds):
                turns.round(number, cases)
                _write(path, machine, results)  # what is measured is kept, whatever comes
            if shape.catalogued and not arguments.no_accuracy:
                accuracy.measure(shape, result, workers, _progress)
                _write(path, machine, results)
    print(_text(results, as_markdown=arguments.markdown))
    _progress(f"written: {path}")
    return 0


def _arguments(text: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--peers", type=_names(PEERS), default=PEERS, help=", ".join(PEERS))
    parser.add_argument("--models", type=_names(tuple(SHAPES)), default=tuple(SHAPES))
    parser.add_argument("--engines", type=_split, help="only these rows")
    parser.add_argument("--cases", type=_split, help="only these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="one round of a few short cases, and no accuracy"
    )
    parser.add_argument("--http", action="store_true", help="also servers with their clients")
    parser.add_argument("--explore", action="store_true", help="settings of the peers instead")
    parser.add_argument("--no-accuracy", action="store_true", help="measure times alone")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, default=RESULTS / "results.json", metavar="PATH")
    arguments = parser.parse_args()
    arguments.models = [SHAPES[name] for name in arguments.models]
    if arguments.quick:
        arguments.rounds, arguments.models = 1, arguments.models[:1]
        arguments.no_accuracy = True
    return arguments


def _split(text: str) -> list[str]:
    return text.split(",")


def _names(known: tuple[str, ...]) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name for name in text.split(",") if name)
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; {', '.join(known)}")
        return names

    return parse


def _cases(shape: Shape, arguments: argparse.Namespace) -> list[Case]:
    wanted = arguments.cases or (_QUICK_CASES if arguments.quick else None)
    return [case for case in cases_of(shape) if wanted is None or case.name in wanted]


def _write(
    path: Path, machine: dict[str, Any], results: list[tuple[ShapeResult, Sequence[Case]]]
) -> None:
    models = [
        {**asdict(result), "figures": [plain_row(row) for row in rows(result, cases, HEADWAY)]}
        for result, cases in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "models": models}, indent=1) + "\n")


def _text(results: list[tuple[ShapeResult, Sequence[Case]]], *, as_markdown: bool) -> str:
    parts = []
    for result, cases in results:
        table = rows(result, cases, HEADWAY)
        parts.append(report.figures(result, table, as_markdown=as_markdown))
        parts.append(report.engines(result, as_markdown=as_markdown))
    return "\n\n".join([*parts, report.legend(HEADWAY)])


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
