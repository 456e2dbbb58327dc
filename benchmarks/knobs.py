"""What each knob does, turned alone: measures all, or those named, and prints or writes them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.knob.document import KNOBS, section, write
from benchmarks.knob.turning import turned


def main() -> int:
    """Measure, and print or write."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("knobs", nargs="*", help="all, if none is named")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    arguments.add_argument("--write", type=Path, metavar="FILE", help="write the document")
    given = arguments.parse_args()
    unknown = set(given.knobs) - {knob.name for knob in KNOBS}
    if unknown:
        print(f"no knob is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if given.write:
        text = write(tell=lambda name: print(name, file=sys.stderr, flush=True))
        given.write.write_text(text, encoding="utf-8")
        return 0
    chosen = [knob for knob in KNOBS if not given.knobs or knob.name in given.knobs]
    rows = {knob.name: turned(knob) for knob in chosen}
    if given.json:
        print(json.dumps({name: [asdict(row) for row in each] for name, each in rows.items()}))
    else:
        print("\n\n".join(section(knob, rows[knob.name]) for knob in chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
