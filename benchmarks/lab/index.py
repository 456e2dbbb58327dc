"""The index of the lab."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lab.experiments import NAMES


def index(folder: Path) -> str:
    """Return the list of the pages in a folder, each with its answer."""
    return _HEAD + "\n\n".join(_entry(folder / f"{name}.md") for name in NAMES) + "\n"


def _entry(path: Path) -> str:
    """Return the title of a page and its answer; what was not written yet has neither."""
    if not path.is_file():
        return f"**{path.stem}**: not written yet"
    text = path.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    answer = text.partition("## Answer\n\n")[2].partition("\n")[0]
    return f"**[{title}]({path.name})**\n{answer}"


_HEAD = """# The lab

Six questions about batching, the three knobs, and six symptoms: an experiment for each that you can
run, and its answer in two sentences. From a checkout:

```sh
make lab
```

installs what serving needs (no torch), fetches the default model once, runs all and writes these
pages anew: three to five minutes on two idle cores. Questions 1 to 4 are measured, on the real
executor with the default model, and the same code runs on a simulated one (a 7B model on an A100).
The others are simulated, in virtual time, and the same on every machine.

- What was measured is kept in [measured.json](measured.json). `make lab ARGS=--saved` makes pages
  from it and from fresh simulations; a test does so too, and compares.
- `make lab ARGS=symptoms`, or the name of another page, runs that alone.
- Every figure in an answer comes from its run, and code checks what the answer claims. Where a run
  contradicts it, the page is not written: the claim and the figures are told instead, and the exit
  status is 1.

"""
