"""The page: whole, self-contained, and true to its report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import crowd, record, report

from headway.report import Outcome, RampStep, Report, page
from headway.report.charts import charts
from headway.report.scales import Linear, Logarithmic, Scale, Tail, around
from headway.workload import Targets

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Checker(HTMLParser):
    """Follows the nesting of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.references += [v or "" for k, v in attributes if k in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return checker


def everything() -> Report:
    records = [
        *crowd(),
        record(8.0, (), outcome=Outcome.FAILED, error="http 503 <queue> & full"),
        record(8.1, (8.2,), outcome=Outcome.CANCELLED),
        record(8.2, (8.3, 8.4), stalled=True),
    ]
    step = RampStep(
        request_rate=2.0,
        request_throughput=1.9,
        output_throughput=100.0,
        goodput=1.5,
        attained=0.8,
        p99_ttft_s=0.2,
        p99_tpot_s=None,
    )
    made = report(records, fast=Targets(ttft_s=0.1, tpot_s=0.02))
    ramp = [step, replace(step, request_rate=4.0)]
    return replace(made, ramp=ramp, knee=2.0, warnings=["the client was <late>"])


def test_the_page_is_whole_and_needs_no_network() -> None:
    html = page(everything())
    checker = checked(html)
    assert checker.references == []
    assert not checker.seen & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import|src=", html)
    assert {"svg", "table", "style"} <= checker.seen
    assert "prefers-color-scheme:dark" in html


def test_text_from_outside_is_escaped() -> None:
    html = page(everything())
    assert "A &lt;test&gt;" in html
    assert "http 503 &lt;queue&gt; &amp; full" in html
    assert "the client was &lt;late&gt;" in html
    assert "<queue>" not in html


def test_every_chart_is_xml_with_finite_places() -> None:
    drawings = list(charts(everything()))
    assert {each.title for each in drawings} >= {
        "Time to first token",
        "Time per further token",
        "Time between pieces",
        "End to end",
        "Requests",
        "Under way",
        "Output tokens",
        "Ramp",
    }
    for each in drawings:
        assert ElementTree.fromstring(each.svg).tag == "svg"
        assert not re.search(r"nan|inf", each.svg)
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", each.svg):
            assert 0 <= float(x) <= 560
            assert 0 <= float(y) <= 300


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record()],
        [record(0.0, (0.0, 0.0, 0.0))],  # everything at once
        [record(0.0, (), outcome=Outcome.FAILED, error="x")],
        [record(0.0, (), outcome=Outcome.UNFINISHED)],
    ],
    ids=["none", "one", "no time", "failed", "unfinished"],
)
def test_little_is_enough_for_a_page(records: list) -> None:
    checked(page(report(records, duration_s=0.0)))


def test_many_requests_make_no_larger_page() -> None:
    small, large = len(page(report(crowd(count=500)))), len(page(report(crowd(count=20_000), 2e3)))
    assert large < 4 * small


SCALES = st.one_of(
    st.builds(Linear, st.just(0.0), st.floats(1e-6, 1e9)),
    st.builds(around, st.floats(0, 1e3), st.floats(1e3, 1e5)),
    st.builds(Tail, st.floats(1, 4)),
)


@given(SCALES, st.lists(st.floats(0, 1e5), min_size=2, max_size=20))
def test_scales_keep_the_order_and_stay_inside(scale: Scale, values: list[float]) -> None:
    inside = sorted(min(each, 0.999999) if isinstance(scale, Tail) else each for each in values)
    places = [scale.place(each) for each in inside]
    assert places == sorted(places)
    assert all(0 <= each <= 1 for each in places)


@given(SCALES)
def test_ticks_lie_on_the_axis_in_order(scale: Scale) -> None:
    ticks = scale.ticks()
    places = [place for place, _ in ticks]
    assert places == sorted(places)
    assert all(0 <= each <= 1 for each in places)
    assert len(ticks) <= 40


def test_ticks_by_hand() -> None:
    assert [label for _, label in Linear(0, 10).ticks()] == ["0", "2", "4", "6", "8", "10"]
    assert [label for _, label in Logarithmic(0.01, 1).ticks()] == [
        "10 ms",
        "20 ms",
        "50 ms",
        "100 ms",
        "200 ms",
        "500 ms",
        "1 s",
    ]
    assert [label for _, label in Tail(3).ticks()] == ["0", "50 %", "90 %", "99 %", "99.9 %"]
