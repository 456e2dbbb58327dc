"""JSON with vLLM's keys, CSV, the table for the terminal."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from report_samples import crowd, record, report

from headway.report import CSV_COLUMNS, Outcome, RampStep, as_text, page, to_json, write_csv
from headway.report.text import duration, number, percent
from headway.workload import Targets

#: what `vllm bench serve` writes for every run, and what plots of others read
VLLM_KEYS = {
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    *(
        f"{name}_{metric}_ms"
        for name in ("mean", "median", "std", "p99")
        for metric in ("ttft", "tpot", "itl", "e2el")
    ),
}
DETAILS = {
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "latencies",
    "start_times",
    "queue_times",
    "errors",
}


def test_the_keys_are_those_of_vllm_and_the_value_is_strict_json() -> None:
    value = to_json(report(crowd()))
    assert value.keys() >= VLLM_KEYS
    assert not value.keys() & DETAILS
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert set(value["classes"]) == {"fast", "slow"}
    assert value["classes"]["fast"].keys() >= VLLM_KEYS - {
        "max_output_tokens_per_s",
        "max_concurrent_requests",
    }
    assert value["tenants"].keys() == {"f", "s"}
    assert value["model_id"] == "tiny"


def test_quantiles_stand_under_the_names_of_vllm() -> None:
    value = to_json(report([record(0.0, (0.5, 1.0)), record(0.0, (1.5, 2.0))]))
    assert value["median_ttft_ms"] == value["p50_ttft_ms"] == pytest.approx(1000)
    assert value["p99_ttft_ms"] == pytest.approx(1490)
    assert value["p99.9_ttft_ms"] == pytest.approx(1499)
    assert value["max_concurrent_requests"] == 2
    assert value["max_output_tokens_per_s"] == 2


def test_goodput_is_null_where_nothing_was_promised() -> None:
    records = crowd()
    assert to_json(report(records))["request_goodput"] is None
    value = to_json(report(records, fast=Targets(ttft_s=10.0)))
    assert value["request_goodput"] == pytest.approx(6.0)
    assert value["classes"]["fast"]["targets"] == {
        "ttft_ms": 10_000.0,
        "tpot_ms": None,
        "e2el_ms": None,
    }
    assert value["classes"]["slow"]["request_goodput"] is None


def test_what_was_not_measured_is_null() -> None:
    value = to_json(report([record(0.0, (), outcome=Outcome.FAILED, error="timeout")]))
    assert value["mean_ttft_ms"] is None
    assert value["p99_itl_ms"] is None
    assert value["errors_by_kind"] == {"timeout": 1}
    json.dumps(value, allow_nan=False)


def test_details_have_an_entry_for_each_request() -> None:
    records = [*crowd(count=5), record(9.0, (), outcome=Outcome.FAILED, error="timeout")]
    value = to_json(report(records), detailed=True)
    assert value.keys() >= DETAILS
    assert {len(value[name]) for name in DETAILS} == {6}
    assert value["output_lens"][-1] == 0
    assert value["errors"][-1] == "timeout"


def test_a_ramp_is_in_the_json_and_the_table() -> None:
    step = RampStep(
        request_rate=2.0,
        request_throughput=1.9,
        output_throughput=100.0,
        goodput=1.5,
        attained=0.8,
        p99_ttft_s=0.2,
        p99_tpot_s=None,
    )
    made = replace(report(crowd()), ramp=[step], knee=2.0)
    value = to_json(made)
    assert value["ramp"][0]["goodput"] == 1.5
    assert value["knee_request_rate"] == 2.0
    assert "knee at 2 requests/s" in as_text(made)
    assert "no knee" in as_text(replace(made, knee=None))


def test_csv_has_a_row_for_each_request() -> None:
    stream = io.StringIO()
    records = [record(0.5, (1.0, 1.5)), record(2.0, (), outcome=Outcome.FAILED, error="x, y")]
    write_csv(records, stream)
    first, second = csv.DictReader(io.StringIO(stream.getvalue()))
    assert tuple(first) == CSV_COLUMNS
    times = [first[name] for name in ("ttft_ms", "e2el_ms", "tpot_ms")]
    assert times == ["500.000", "1000.000", "500.000"]
    assert (second["error"], second["ttft_ms"], second["outcome"]) == ("x, y", "", "failed")


def test_the_table_says_what_happened() -> None:
    records = [*crowd(), record(9.0, (), outcome=Outcome.FAILED, error="timeout")]
    text = as_text(report(records, fast=Targets(ttft_s=0.001)))
    assert "60 of 61 requests completed, 1 failed" in text
    assert "1 x timeout" in text
    assert "class fast" in text
    assert "class slow" in text
    assert "0.0 % met all targets" in text
    assert "nothing was completed" in as_text(report([]))


def test_numbers_for_people() -> None:
    assert [duration(v) for v in (None, 0.0, 0.00123, 0.05, 1.5, 75.0)] == [
        "–",
        "0.00 ms",
        "1.2 ms",
        "50.0 ms",
        "1500 ms",
        "75.0 s",
    ]
    assert [number(v) for v in (0, 0.123, 12.34, 1234.5)] == ["0", "0.12", "12.3", "1,234"]
    assert [percent(v) for v in (None, 0.5, 0.99999, 1.0)] == ["–", "50.0 %", "99.9 %", "100.0 %"]


def test_failures_come_with_what_was_wrong_with_the_first_of_each_kind() -> None:
    refused = [record(at, (), outcome=Outcome.FAILED, error="http 400") for at in (0.0, 1.0, 2.0)]
    refused[1].detail, refused[2].detail = "no class\nnosuch", "later"
    lost = record(3.0, (), outcome=Outcome.FAILED, error="timeout")
    made = report([*refused, lost])
    assert "  3 x http 400, first: no class nosuch\n  1 x timeout\n" in as_text(made)
    assert to_json(made)["error_details"] == {"http 400": "no class\nnosuch"}
    assert "<td>no class\nnosuch</td>" in page(made)
