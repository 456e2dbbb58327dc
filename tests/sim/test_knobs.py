"""`docs/knobs.md` is what its command writes, and says what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.knob.document import GROUPS, KNOBS, head, section
from benchmarks.knob.turning import Trend, turned

DOCUMENT = Path(__file__).parents[2] / "docs" / "knobs.md"
SAMPLE = ("max_num_seqs", "enable_chunked_prefill", "watermark", "max_running_share")


@pytest.fixture(scope="module")
def document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_section_is_what_is_measured_now(document: str, name: str) -> None:
    (knob,) = (each for each in KNOBS if each.name == name)
    assert section(knob, turned(knob)) in document, "out of date: see its first paragraph"


def test_every_knob_has_its_section_in_order(document: str) -> None:
    assert document.startswith(head())
    assert re.findall("^## (.*)$", document, re.MULTILINE) == list(GROUPS)
    assert re.findall("^### `(.*)`$", document, re.MULTILINE) == [each.name for each in KNOBS]
    assert len({each.name for each in KNOBS}) == len(KNOBS)
    for knob in KNOBS:
        assert f"\n{knob.stated}\n" in document


def test_what_was_not_seen_is_explained(document: str) -> None:
    for knob in KNOBS:
        text = document.partition(f"### `{knob.name}`")[2].partition("\n## ")[0]
        text = text.partition("\n### ")[0]
        assert "**no**" not in text or knob.note, knob.name


@pytest.mark.parametrize(
    ("trend", "values", "holds"),
    [
        (Trend.RISES, (1, 2, 3), True),
        (Trend.RISES, (100, 99, 110), True),  # 1 % is no change
        (Trend.RISES, (100, 90, 110), False),
        (Trend.RISES, (100, 101), False),
        (Trend.FALLS, (3, 2, 1), True),
        (Trend.FALLS, (0, 0), False),
        (Trend.STAYS, (100, 95, 104), True),
        (Trend.STAYS, (100, 80), False),
    ],
)
def test_trends(trend: Trend, values: tuple[float, ...], holds: bool) -> None:
    assert trend.holds(values) == holds
