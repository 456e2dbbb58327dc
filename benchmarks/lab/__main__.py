"""The lab: runs its experiments, checks what their answers say, and writes the pages.

A page whose answer the results contradict is not written: the claim and the results are told
instead, and the exit status is 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import parser
from benchmarks.lab.experiments import SIMULATED
from benchmarks.lab.index import index
from benchmarks.lab.page import Page, Table, table_text, text_of


def main() -> int:
    """Run, and print or write."""
    arguments = parser(__doc__)
    arguments.add_argument("names", nargs="*", metavar="PAGE", help="all, if none is named")
    arguments.add_argument("--write", type=Path, metavar="FOLDER", help="write the pages there")
    given = arguments.parse_args()
    unknown = set(given.names) - set(SIMULATED)
    if unknown:
        print(
            f"no page is called {', '.join(sorted(unknown))}: {', '.join(SIMULATED)}",
            file=sys.stderr,
        )
        return 2
    pages = list(_run(given.names))
    if given.json:
        print(json.dumps({page.name: as_json(page) for page in pages}))
    elif given.write is None:
        print("\n".join(map(text_of, pages)))
    if given.write is not None:
        write([page for page in pages if not page.broken], given.write)
    return tell_broken(pages)


def _run(names: Sequence[str]) -> Iterator[Page]:
    for name, experiment in SIMULATED.items():
        if not names or name in names:
            print(name, file=sys.stderr, flush=True)
            yield experiment()


def write(pages: Sequence[Page], folder: Path) -> None:
    """Write the files of these pages, and the index of all."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        for name, text in page.files():
            (folder / name).write_text(text, encoding="utf-8")
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
        "answer": " ".join(page.answer.split()),
        "claims": [{"says": claim.says, "holds": claim.holds} for claim in page.claims],
    }


if __name__ == "__main__":
    sys.exit(main())
