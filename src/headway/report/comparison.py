"""Several runs of one workload side by side: a row for each, in text, JSON and CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, TextIO

from headway.report.figures import Figures
from headway.report.report import Fact
from headway.report.text import aligned, duration, number, percent


class Column(NamedTuple):
    """A figure: its key in JSON and CSV, its head in tables, and how people see it."""

    key: str
    head: str
    show: Callable[[float], str]


def _ms(value: float) -> str:
    return duration(value / 1e3)


COLUMNS = (
    Column("output_throughput", "tokens/s", number),
    Column("ms_per_token", "per token", _ms),
    Column("mean_tpot_ms", "TPOT mean", _ms),
    Column("p50_ttft_ms", "TTFT p50", _ms),
    Column("p99_ttft_ms", "TTFT p99", _ms),
    Column("mean_batch", "mean batch", number),
    Column("padding_share", "padding", percent),
)
_PROMISED = Column("attained", "in time", percent)
_THROUGHPUT, _PER_TOKEN = COLUMNS[0].key, COLUMNS[1].key

Values = Mapping[str, float | None]
"""The figures of one run, by the keys of the columns; None where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row.

    Attributes:
        name: of the mode, for files.
        title: for people.
        num_slots: sequences at once at most.
        runs: the figures of each repetition.
        first: those of the first one in full, for the charts.
        stated: (tokens a second, milliseconds a token) of a text, if it is shown.
        note: why they differ from what was measured.
    """

    name: str
    title: str
    num_slots: int
    runs: Sequence[Values]
    first: Figures
    stated: tuple[float, float] | None = None
    note: str = ""

    def middle(self, key: str) -> float | None:
        """Return the median of a figure over the repetitions."""
        values = self.values(key)
        return median(values) if values else None

    def values(self, key: str) -> list[float]:
        """Return a figure of all repetitions that have it."""
        return [value for each in self.runs if (value := each.get(key)) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows, and how they were measured."""

    title: str
    facts: Mapping[str, Fact]
    rows: Sequence[Compared]
    warnings: Sequence[str] = ()

    def columns(self) -> tuple[Column, ...]:
        """Return the columns for which there is something to show."""
        has_targets = any(each.values(_PROMISED.key) for each in self.rows)
        return (*COLUMNS, _PROMISED) if has_targets else COLUMNS


def comparison_as_text(comparison: Comparison) -> str:
    """Return the table, and what follows from it."""
    head, rows = comparison_table(comparison)
    lines = [comparison.title, "", *aligned([head, *rows])]
    if any(len(each.runs) > 1 for each in comparison.rows):
        lines += ["", *aligned([*_spread(comparison)])]
    notes = [*gains(comparison), *(each.note for each in comparison.rows if each.note)]
    lines += ["", *notes] if notes else []
    lines += [f"warning: {each}" for each in comparison.warnings]
    return "\n".join(lines)


def comparison_table(
    comparison: Comparison,
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows, of medians where there are several repetitions."""
    columns = comparison.columns()
    has_stated = any(each.stated for each in comparison.rows)
    stated = ("stated tokens/s", "stated per token") if has_stated else ()
    head = ("mode", "slots", *(each.head for each in columns), *stated)
    return head, [_row(each, columns, has_stated=has_stated) for each in comparison.rows]


def _row(row: Compared, columns: Sequence[Column], *, has_stated: bool) -> tuple[str, ...]:
    values = (_cell(each, row.middle(each.key)) for each in columns)
    stated: tuple[str, ...] = ()
    if has_stated:
        stated = ("–", "–") if row.stated is None else _stated(*row.stated)
    return (row.title, str(row.num_slots), *values, *stated)


def _stated(tokens_per_s: float, ms_per_token: float) -> tuple[str, str]:
    return number(tokens_per_s), f"{ms_per_token:g} ms"


def _cell(column: Column, value: float | None) -> str:
    return "–" if value is None else column.show(value)


def _spread(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return a table of the least and the most of each figure over the repetitions."""
    columns = comparison.columns()
    rows = [("from – to", *(each.head for each in columns))]
    for row in comparison.rows:
        cells = []
        for each in columns:
            values = row.values(each.key)
            cells.append(f"{each.show(min(values))} – {each.show(max(values))}" if values else "–")
        rows.append((row.title, *cells))
    return rows


def gains(comparison: Comparison) -> list[str]:
    """Say how the last row compares with each of the others."""
    *others, last = comparison.rows
    return [line for each in others if (line := _gain(last, each))]


def _gain(one: Compared, other: Compared) -> str | None:
    rates = one.middle(_THROUGHPUT), other.middle(_THROUGHPUT)
    times = one.middle(_PER_TOKEN), other.middle(_PER_TOKEN)
    if not rates[0] or not rates[1] or not times[0] or not times[1]:
        return None
    return (
        f"{one.title} against {other.title}: {rates[0] / rates[1]:.2f} times the tokens/s, "
        f"{times[0] / times[1]:.2f} times the time per token"
    )


# -------------------------------------------------------------------- for programs


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the medians of each mode, its runs, and what is stated of it."""
    columns = comparison.columns()
    return {
        **comparison.facts,
        "modes": {each.name: _mode_to_json(each, columns) for each in comparison.rows},
        "gains": gains(comparison),
        "warnings": list(comparison.warnings),
    }


def _mode_to_json(row: Compared, columns: Sequence[Column]) -> dict[str, Any]:
    value: dict[str, Any] = {each.key: row.middle(each.key) for each in columns}
    value["num_slots"] = row.num_slots
    value["completed"] = row.first.num_completed
    value["runs"] = [dict(each) for each in row.runs]
    if row.stated is not None:
        value["stated"] = dict(zip((_THROUGHPUT, _PER_TOKEN), row.stated, strict=True))
        value["note"] = row.note
    return value


def write_comparison_csv(comparison: Comparison, file: TextIO) -> None:
    """Write a row for each run."""
    columns = comparison.columns()
    writer = csv.writer(file)
    writer.writerow(("mode", "repetition", *(each.key for each in columns)))
    for row in comparison.rows:
        for place, values in enumerate(row.runs, 1):
            cells = (values.get(each.key) for each in columns)
            writer.writerow((row.name, place, *("" if v is None else f"{v:.6g}" for v in cells)))
