"""Medians, ratios and the table of the comparison with peers."""

from __future__ import annotations

from benchmarks.peers.cases import SMALL, Case, Figure, rate
from benchmarks.peers.protocol import Timing
from benchmarks.peers.report import engines, figures
from benchmarks.peers.results import EngineResult, Measurement, ShapeResult, plain_row, rows

CASE = Case(
    name="case",
    streams=2,
    prompt=10,
    output=5,
    figures=(Figure(kind="output", label="mix", target=1.5),),
)


def result(seconds: dict[str, list[float]]) -> ShapeResult:
    found = ShapeResult(name="shape", label="Shape")
    for name, times in seconds.items():
        is_headway = name == "headway"
        found.engines[name] = EngineResult(name=name, setting="plain", is_headway=is_headway)
        for number, time in enumerate(times):
            found.measurements.append(
                Measurement(
                    case="case",
                    engine=name,
                    round=number,
                    timing=Timing(time, time / 2, 10),
                    fork_join_ns=100.0 * (number + 1),
                )
            )
    return found


def test_each_kind_of_rate_counts_its_own_tokens_over_its_own_time() -> None:
    timing = Timing(seconds=4.0, first_s=1.0, output_tokens=10)
    assert rate("output", CASE, timing) == 2.5
    assert rate("prefill", CASE, timing) == 20
    assert rate("decode", CASE, timing) == 8 / 3


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # the machine was half as fast in the last round, for both
    found = result({"headway": [1.0, 1.0, 2.0], "fast": [2.0, 2.2, 4.0], "slow": [9.0, 9.0, 9.0]})
    (row,) = rows(found, [CASE], "headway")
    assert row.best_peer == "fast"
    assert row.ratio == 2.0
    assert row.is_met is True
    assert row.cells["headway"].median == 10
    assert row.cells["headway"].spread == 0.25
    assert row.cells["headway"].fork_join_ns == 200


def test_a_target_is_missed_below_it() -> None:
    (row,) = rows(result({"headway": [1.0], "peer": [1.4]}), [CASE], "headway")
    assert row.is_met is False


def test_another_row_of_headway_is_no_peer() -> None:
    found = result({"headway": [1.0], "headway int8": [0.1]})
    found.engines["headway int8"].is_headway = True
    (row,) = rows(found, [CASE], "headway")
    assert row.best_peer is None
    assert row.ratio is None
    assert row.is_met is None


def test_the_best_rows_of_both_sides_are_compared_and_the_default_beside_them() -> None:
    found = result({"headway": [1.0], "headway int8": [0.5], "peer": [2.0], "slow peer": [3.0]})
    found.engines["headway int8"].is_headway = True
    (row,) = rows(found, [CASE], "headway")
    assert (row.best_own, row.best_peer) == ("headway int8", "peer")
    assert (row.ratio, row.default_ratio) == (4.0, 2.0)


def test_rounds_that_one_side_lacks_do_not_count() -> None:
    (row,) = rows(result({"headway": [1.0, 1.0], "peer": [3.0]}), [CASE], "headway")
    assert row.ratio == 3.0


def test_without_headway_there_is_no_ratio() -> None:
    (row,) = rows(result({"peer": [1.0]}), [CASE], "headway")
    assert row.ratio is None


def test_table_names_the_best_and_says_what_is_met() -> None:
    found = result({"headway": [1.0], "peer": [2.0]})
    table = rows(found, [CASE], "headway")
    text = figures(found, table, as_markdown=True)
    assert "| Shape | headway | peer | ratio | default | target | met | fork-join ns |" in text
    assert "| mix | *10.0 ±0 | *5.0 ±0 | 2.00 | 2.00 | 1.50 | yes | 100 / 100 |" in text
    assert plain_row(table[0])["met"] is True


def test_a_peer_that_failed_is_a_row_with_the_reason() -> None:
    found = result({"headway": [1.0]})
    found.engines["vllm"] = EngineResult(
        name="vllm", setting="bfloat16", is_headway=False, error="no such wheel"
    )
    assert "vllm: bfloat16; FAILED: no such wheel" in engines(found, as_markdown=False)
    assert "no such wheel" in engines(found, as_markdown=True)


def test_prompts_differ_by_round_and_case_and_are_the_same_again() -> None:
    first, second = SMALL[:2]
    assert first.prompts(5000, "a") == first.prompts(5000, "a")
    assert first.prompts(5000, "a") != first.prompts(5000, "b")
    assert first.prompts(5000, "a")[0] != second.prompts(5000, "a")[0]
    every = [tuple(prompt) for prompt in SMALL[3].prompts(5000, "a")]
    assert len(set(every)) == 64
    assert all(len(prompt) == 128 and max(prompt) < 5000 for prompt in every)
