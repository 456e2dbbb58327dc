"""A comparison as text, JSON, CSV and page."""

from __future__ import annotations

import csv
import io
import json

import pytest
from report_samples import crowd
from test_report_page import checked

from headway.report import (
    Compared,
    Comparison,
    comparison_as_text,
    comparison_page,
    comparison_to_json,
    figures,
    write_comparison_csv,
)


def row(name: str, *rates: float, note: str = "", **changes: float | None) -> Compared:
    values = [
        {
            "output_throughput": rate,
            "ms_per_token": 1e4 / rate,
            "mean_tpot_ms": 20.0,
            "p50_ttft_ms": 150.0,
            "p99_ttft_ms": 20_000.0,
            "mean_batch": 3.5,
            "padding_share": 0.25,
            **changes,
        }
        for rate in rates
    ]
    return Compared(
        name=name,
        title=name.replace("-", " "),
        num_slots=8,
        runs=values,
        first=figures(crowd(), 10.0, {}),
        stated=(80.0, 100.0) if note else None,
        note=note,
    )


def comparison(*rows: Compared) -> Comparison:
    return Comparison(title="Some <modes>", facts={"seed": 1}, rows=rows, warnings=["too few"])


BOTH = comparison(row("static-8", 100, 90, 140), row("continuous", 300, 310, 270))


def test_the_table_has_medians() -> None:
    lines = comparison_as_text(BOTH).splitlines()
    (line,) = (each for each in lines if each.startswith("static 8") and " – " not in each)
    assert line.split() == [
        "static",
        "8",
        "8",
        "100",
        "100",
        "ms",
        "20.0",
        "ms",
        "150",
        "ms",
        "20.0",
        "s",
        "3.50",
        "25.0",
        "%",
    ]


def test_the_spread_is_shown_where_there_is_one() -> None:
    text = comparison_as_text(BOTH)
    assert "90 – 140" in text.replace("90.0", "90")
    assert "from – to" not in comparison_as_text(comparison(row("a", 1), row("b", 2)))


def test_the_last_mode_is_held_against_the_others() -> None:
    text = comparison_as_text(BOTH)
    assert (
        "continuous against static 8: 3.00 times the tokens/s, 0.33 times the time per token"
        in text
    )


def test_a_mode_that_completed_nothing_is_held_against_nobody() -> None:
    text = comparison_as_text(comparison(row("a", 1, ms_per_token=None), row("b", 2)))
    assert "against" not in text


def test_stated_figures_and_why_they_differ() -> None:
    shown = comparison(row("none", 10, note="Because."), row("continuous", 20))
    text = comparison_as_text(shown)
    assert "stated tokens/s" in text
    assert "\nBecause.\n" in text
    assert "stated" not in comparison_as_text(BOTH)
    modes = comparison_to_json(shown)["modes"]
    assert modes["none"]["stated"] == {"output_throughput": 80.0, "ms_per_token": 100.0}
    assert "stated" not in modes["continuous"]


def test_the_share_in_time_is_shown_where_something_was_promised() -> None:
    assert "in time" not in comparison_as_text(BOTH)
    assert "in time" in comparison_as_text(comparison(row("a", 1, attained=0.5), row("b", 2)))


def test_json_has_the_median_and_each_run() -> None:
    value = json.loads(json.dumps(comparison_to_json(BOTH), allow_nan=False))
    assert value["seed"] == 1
    static = value["modes"]["static-8"]
    assert static["output_throughput"] == 100
    assert [each["output_throughput"] for each in static["runs"]] == [100, 90, 140]


def test_csv_has_a_row_for_each_run() -> None:
    file = io.StringIO()
    write_comparison_csv(BOTH, file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [(each["mode"], each["repetition"]) for each in rows] == [
        (name, str(place)) for name in ("static-8", "continuous") for place in (1, 2, 3)
    ]
    assert float(rows[1]["output_throughput"]) == 90


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    html = comparison_page(BOTH)
    seen = checked(html)
    assert seen.references == []
    assert "script" not in seen.seen
    assert "Some &lt;modes&gt;" in html
    assert html.count("<rect") == 6
    assert html.count("<figure>") == 7


def test_bars_are_in_proportion() -> None:
    widths = [float(part.split('"')[0]) for part in comparison_page(BOTH).split('width="')[1:3]]
    assert widths[1] / widths[0] == pytest.approx(3.0, rel=0.01)
