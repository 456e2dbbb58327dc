"""The lab's pages are what its code makes of what was measured, and its answers are checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.lab import bench, decode_and_prefill, saved
from benchmarks.lab.__main__ import main, tell_broken, write
from benchmarks.lab.experiments import MEASURED, NAMES, SIMULATED
from benchmarks.lab.figure import Doublings
from benchmarks.lab.index import index
from benchmarks.lab.page import Claim, Page, Table, text_of

from headway.errors import UsageError

FOLDER = Path(__file__).parents[2] / "docs" / "lab"


def page_of(name: str) -> Page:
    if name in SIMULATED:
        return SIMULATED[name]()
    experiment = MEASURED[name]
    measured = saved.read(FOLDER, name, experiment.outcome)
    return experiment.page(measured, experiment.measure(bench.simulated(), 1))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_its_experiment_writes_now(name: str) -> None:
    page = page_of(name)
    assert page.name == name
    assert page.broken == []
    for file, content in page.files():
        kept = (FOLDER / file).read_text(encoding="utf-8")
        assert kept == content, "out of date: make lab ARGS=--saved"


def test_the_folder_has_the_pages_and_nothing_else() -> None:
    shown = "".join((FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in NAMES)
    figures = set(re.findall(r"\]\(([^)]+\.svg)\)", shown))
    pages = {f"{name}.md" for name in NAMES}
    assert {path.name for path in FOLDER.iterdir()} == pages | figures | {"README.md", saved.FILE}
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index(FOLDER)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.svg")), ids=lambda path: path.stem)
def test_figures_stand_alone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search(r"(?:href|src|url\(|@import)", text), "it needs another file"
    defined = set(re.findall(r"(--[\w-]+):", text))
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= defined


# -------------------------------------------------------------------- claims


def a_page(*, holds: bool) -> Page:
    table = Table("What was seen:", ("batch", "tokens/s"), (("1", "100"), ("2", "90")))
    return Page("a", "Why?", "As said.", (table,), "One. Two.", (Claim("more is more", holds),))


def test_a_page_that_its_results_contradict_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = a_page(holds=False)
    write([broken], {}, tmp_path)
    assert tell_broken([broken]) == 1
    assert [path.name for path in tmp_path.glob("*.md")] == ["README.md"]
    told = capsys.readouterr().err
    assert "a: this does not hold: more is more" in told
    assert "| 2 | 90 |" in told


def test_claims_that_hold_stand_on_the_page(tmp_path: Path) -> None:
    page = a_page(holds=True)
    write([page], {}, tmp_path)
    assert tell_broken([page]) == 0
    assert "- more is more" in (tmp_path / "a.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("answer", ["One.", "One. Two. Three."])
def test_an_answer_has_two_sentences(answer: str) -> None:
    with pytest.raises(ValueError, match="two sentences"):
        replace(a_page(holds=True), answer=answer)


def reversed_(field: str) -> Callable[[Any], Any]:
    return lambda outcome: replace(outcome, **{field: getattr(outcome, field)[::-1]})


def without_gain(outcome: decode_and_prefill.Outcome) -> decode_and_prefill.Outcome:
    decode_s = tuple(outcome.decode_s[0] * batch for batch in outcome.batches)
    return replace(outcome, decode_s=decode_s)


@pytest.mark.parametrize(
    ("name", "contrary"),
    [
        ("1-decode-and-prefill", without_gain),
        ("2-static-and-continuous", reversed_("mixed")),
        ("3-two-limits", reversed_("settings")),
        ("4-chunked-prefill", reversed_("ways")),
    ],
)
def test_measurements_that_show_the_contrary_break_an_answer(
    name: str, contrary: Callable[[Any], Any]
) -> None:
    experiment = MEASURED[name]
    measured = saved.read(FOLDER, name, experiment.outcome)
    simulated = experiment.measure(bench.simulated(), 1)
    turned = replace(measured, outcome=contrary(measured.outcome))
    assert not experiment.page(measured, simulated).broken
    assert experiment.page(turned, simulated).broken


# -------------------------------------------------------------------- what was measured


def test_nothing_measured_and_another_version_are_said(tmp_path: Path) -> None:
    outcome = MEASURED["4-chunked-prefill"].outcome
    with pytest.raises(UsageError, match="nothing was measured for 4-chunked-prefill"):
        saved.read(tmp_path, "4-chunked-prefill", outcome)
    (tmp_path / saved.FILE).write_text('{"4-chunked-prefill": {"outcome": {}}}', encoding="utf-8")
    with pytest.raises(UsageError, match="measure it again"):
        saved.read(tmp_path, "4-chunked-prefill", outcome)


def test_what_is_kept_is_what_is_read(tmp_path: Path) -> None:
    for name, experiment in MEASURED.items():
        measured = saved.read(FOLDER, name, experiment.outcome)
        saved.keep(tmp_path, {name: measured})
        assert saved.read(tmp_path, name, experiment.outcome) == measured
    assert (tmp_path / saved.FILE).read_bytes() == (FOLDER / saved.FILE).read_bytes()


# -------------------------------------------------------------------- the command


def test_pages_by_name_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lab", "4-chunked-prefill", "--saved", "--json"])
    assert main() == 0
    (shown,) = json.loads(capsys.readouterr().out).values()
    page = page_of("4-chunked-prefill")
    assert shown["question"] == page.title
    assert all(claim["holds"] for claim in shown["claims"])
    assert shown["answer"] in text_of(page)


def test_an_unknown_page_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lab", "7-luck"])
    assert main() == 2
    assert "no page is called 7-luck: 1-decode-and-prefill" in capsys.readouterr().err


def test_each_doubling_is_as_far_as_the_one_before() -> None:
    places = [place for place, _ in Doublings((4, 8, 16)).ticks()]
    assert places == pytest.approx([0.0, 0.5, 1.0])
    assert Doublings((4, 8)).place(100) == 1.0
