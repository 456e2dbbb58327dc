"""The lab: runs its experiments, checks what their answers say, and writes the pages.

A page whose answer the results contradict is not written: the claim and the results are told
instead, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import at_least_one, parser, status_of
from benchmarks.lab import bench, saved
from benchmarks.lab.experiments import MEASURED, NAMES, SIMULATED
from benchmarks.lab.index import index
from benchmarks.lab.page import Measurement, Page, Table, prose, table_text, text_of
from headway.errors import UsageError

Measurements = dict[str, Measurement[Any]]

FOLDER = Path(__file__).parents[2] / "docs" / "lab"


def main() -> int:
    """Run, and print or write."""
    arguments = parser(__doc__)
    arguments.add_argument("names", nargs="*", metavar="PAGE", help="all, if none is named")
    arguments.add_argument("--write", type=Path, metavar="FOLDER", help="write the pages there")
    source = arguments.add_mutually_exclusive_group()
    source.add_argument(
        "--saved",
        action="store_true",
        help="measure nothing: take what was measured from the folder",
    )
    source.add_argument(
        "--repetitions", type=at_least_one, default=3, metavar="N", help="of what is measured"
    )
    given = arguments.parse_args()
    return status_of(lambda: _command(given))


def _command(given: argparse.Namespace) -> int:
    chosen = [name for name in NAMES if not given.names or name in given.names]
    if unknown := set(given.names) - set(NAMES):
        raise UsageError(f"no page is called {', '.join(sorted(unknown))}: {', '.join(NAMES)}")
    names = [name for name in chosen if name in MEASURED]
    folder = given.write or FOLDER
    measured = _read(names, folder) if given.saved else _measure(names, given.repetitions)
    pages = [_page(name, measured) for name in chosen]
    if given.json:
        print(json.dumps({page.name: as_json(page) for page in pages}))
    elif given.write is None:
        print("\n".join(map(text_of, pages)))
    if given.write is not None:
        write(pages, measured, folder)
    return tell_broken(pages)


def _read(names: Sequence[str], folder: Path) -> Measurements:
    return {name: saved.read(folder, name, MEASURED[name].outcome) for name in names}


def _measure(names: Sequence[str], repetitions: int) -> Measurements:
    if not names:
        return {}
    machine = bench.real()
    found = {}
    for name in names:
        print(f"{name}: measured", file=sys.stderr, flush=True)
        found[name] = saved.now(machine, MEASURED[name].measure(machine, repetitions), repetitions)
    return found


def _page(name: str, measured: Measurements) -> Page:
    print(f"{name}: simulated", file=sys.stderr, flush=True)
    if name in SIMULATED:
        return SIMULATED[name]()
    experiment = MEASURED[name]
    return experiment.page(measured[name], experiment.measure(bench.simulated(), 1))


def write(pages: Sequence[Page], measured: Measurements, folder: Path) -> None:
    """Write the pages that hold, what was measured for them, and the index of all."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {page.name: page for page in pages if not page.broken}
    for page in written.values():
        for name, text in page.files():
            (folder / name).write_text(text, encoding="utf-8")
    saved.keep(folder, {name: each for name, each in measured.items() if name in written})
    (folder / "README.md").write_text(index(folder), encoding="utf-8")


def tell_broken(pages: Sequence[Page]) -> int:
    """Say which claims don't hold, and by which figures; return the exit status."""
    for page in pages:
        for claim in page.broken:
            print(f"{page.name}: this does not hold: {claim}", file=sys.stderr)
        if page.broken:
            tables = (each for each in page.results if isinstance(each, Table))
            print(*map(table_text, tables), sep="\n\n", file=sys.stderr)
    return int(any(page.broken for page in pages))


def as_json(page: Page) -> dict[str, Any]:
    """Return tables, answer and claims."""
    tables = [each for each in page.results if isinstance(each, Table)]
    return {
        "question": page.title,
        "tables": [{"title": t.title, "head": t.head, "rows": t.rows} for t in tables],
        "answer": prose(page.answer),
        "claims": [{"says": claim.says, "holds": claim.holds} for claim in page.claims],
    }


if __name__ == "__main__":
    sys.exit(main())
