"""A page of the lab: a question, how it was asked, what came out, and an answer that is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.lab.figure import Figure
from benchmarks.table import markdown

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Measurement(Generic[Outcome]):
    """What a real executor did, with where and when.

    Attributes:
        outcome: figures of the experiment, of the fastest repetition of each setting.
        name: of the model.
        processor: that computed.
        cores: that it used.
        date: when.
        repetitions: how often each setting was run, in turn.
    """

    outcome: Outcome
    name: str
    processor: str
    cores: int
    date: str
    repetitions: int

    @property
    def how(self) -> str:
        """How it was measured, for a set-up; what else a machine does only adds time."""
        times = f"{self.repetitions} times, in turn, and the fastest counts"
        return (
            f"Measured on the cpu executor: {self.name}, {self.processor}, {self.cores} cores, "
            f"{self.date}. Each setting is run {times if self.repetitions > 1 else 'once'}"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under their heads, below a line that says what they are."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """What an answer says, with the figures that decide, and whether they bear it out."""

    says: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Page:
    """One experiment.

    Attributes:
        name: of its files, without a suffix.
        title: the question.
        setup: what was run, so that the text alone is enough to run it again.
        results: tables and figures, in order.
        answer: with figures of this run.
        claims: what must hold for the answer to be true.
        notes: what else there is to say of the results.
    """

    name: str
    title: str
    setup: str
    results: Sequence[Table | Figure]
    answer: str
    claims: Sequence[Claim]
    notes: str = ""

    def __post_init__(self) -> None:
        if len(re.findall(r"[.?!](?=\s|$)", prose(self.answer))) != 2:
            raise ValueError(f"{self.name}: an answer has two sentences")

    @property
    def broken(self) -> list[str]:
        """The claims that these results contradict."""
        return [prose(claim.says) for claim in self.claims if not claim.holds]

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield (name, content) of each file."""
        yield f"{self.name}.md", text_of(self)
        for each in self.results:
            if isinstance(each, Figure):
                yield _file_of(self, each), each.svg


def text_of(page: Page) -> str:
    """Return the page as Markdown."""
    results = "\n\n".join(_shown(page, each) for each in page.results)
    checked = "\n".join(f"- {prose(claim.says)}" for claim in page.claims)
    parts = [
        f"# {page.title}",
        f"## Set-up\n\n{prose(page.setup)}",
        f"## Results\n\n{results}",
        *([prose(page.notes)] if page.notes else []),
        f"## Answer\n\n{prose(page.answer)}",
        f"Checked whenever this page is written:\n\n{checked}",
        "[All experiments](README.md)",
    ]
    return "\n\n".join(parts) + "\n"


def table_text(table: Table) -> str:
    """Return a table as it stands on a page."""
    return f"{table.title}\n\n{markdown(table.head, table.rows)}"


def _shown(page: Page, each: Table | Figure) -> str:
    if isinstance(each, Table):
        return table_text(each)
    return f"![{each.shows}]({_file_of(page, each)})"


def _file_of(page: Page, each: Figure) -> str:
    return f"{page.name}-{each.name}.svg"


def prose(text: str) -> str:
    """Return a paragraph as one line, however it was broken in the code."""
    return " ".join(text.split())


def yes(holds: bool) -> str:
    """Return how a table says it."""
    return "yes" if holds else "**no**"
