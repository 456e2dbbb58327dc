"""The index of the lab."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lab.experiments import NAMES


def index(folder: Path) -> str:
    """Return the list of the pages in a folder."""
    lines = [
        f"- [{_title(folder / f'{name}.md')}]({name}.md)"
        for name in NAMES
        if (folder / f"{name}.md").is_file()
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _title(path: Path) -> str:
    first, _, _ = path.read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("# ")


_HEAD = """# The lab

Questions about batching, each answered by an experiment that you can run.

```sh
make lab
```

runs all of them and writes these pages anew.

"""
