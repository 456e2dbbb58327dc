"""When batching is the wrong tool, and when it pays: each case by a small workload and machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.core.costs import StepCosts
from headway.profiles.interference import Interference
from headway.profiles.profile import Profile, write_profile

MACHINE = {
    "--num-blocks": "2000",
    "--max-model-len": "4096",
    "--max-num-seqs": "16",
    "--step-base-ms": "10",
    "--prefill-ms-per-token": "0.05",
    "--decode-ms-per-sequence": "0.2",
}
LOAD = {
    "--num-requests": "80",
    "--request-rate": "4",
    "--prompt-tokens": "uniform:20:400",
    "--output-tokens": "uniform:8:120",
}


def advised(
    capsys: pytest.CaptureFixture[str], *flags: str, **changes: str
) -> tuple[str, dict[str, Any]]:
    named = {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    words = [word for pair in (MACHINE | LOAD | named).items() for word in pair]
    assert main(["advise", "--json", *words, *flags]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found["verdict"], found


def applying(found: dict[str, Any]) -> list[str]:
    return [each["case"] for each in found["findings"] if each["applies"]]


def test_requests_minutes_apart_are_served_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = advised(capsys, request_rate="0.01")
    assert verdict == "sparse"
    assert applying(found) == ["sparse"]
    none, batched = found["modes"]["none"], found["modes"]["continuous"]
    assert batched["mean_e2el_s"] == pytest.approx(none["mean_e2el_s"], rel=0.02)


def test_hard_real_time_reserves_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = advised(capsys, "--hard", "--goodput", "tpot:10.5")
    assert verdict == "real time"
    assert found["modes"]["continuous"]["attained"] < 1
    assert "reserve capacity" in found["advice"]
    verdict, _ = advised(capsys, "--hard", "--goodput", "tpot:500")
    assert verdict == "continuous"


def test_one_giant_request_is_sharded(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = advised(capsys, num_blocks="256", prompt_tokens="3000", num_requests="10")
    assert verdict == "giant"
    assert "shard" in found["advice"]


def test_equal_lengths_need_no_more_than_static_batches(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = advised(capsys, request_rate="inf", prompt_tokens="100", output_tokens="50")
    assert verdict == "equal"
    assert applying(found) == ["equal"]


def test_a_model_that_one_request_saturates(capsys: pytest.CaptureFixture[str]) -> None:
    verdict, found = advised(capsys, step_base_ms="0.1", decode_ms_per_sequence="10")
    assert verdict == "saturated"
    assert applying(found) == ["saturated"]


def test_continuous_batching_pays_where_unequal_requests_meet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict, found = advised(capsys)
    modes = found["modes"]
    assert verdict == "continuous"
    assert applying(found) == []
    assert modes["continuous"]["full_throughput"] > 4 * modes["none"]["full_throughput"]
    assert modes["continuous"]["full_throughput"] > 1.2 * modes["static"]["full_throughput"]


def test_closed_loops_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--num-requests", "8", "--concurrency", "2", "--num-blocks", "90",
                 "--max-model-len", "512"]) == 2  # fmt: skip
    assert "open loop" in capsys.readouterr().err


def test_slow_stretches_are_played(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    words = [word for pair in LOAD.items() for word in pair]
    sizes = ["--num-blocks", "2000", "--max-model-len", "4096", "--max-num-seqs", "16"]

    def mean_e2el_s(factor: float) -> float:
        costs = StepCosts(base_s=0.01, prefill_token_s=0.00005, decode_s=0.0002)
        slow = Interference(0.05, (factor,))
        write_profile(path, Profile(name="one", source="test", device=costs, interference=slow))
        assert main(["advise", "--json", "--profile", str(path), *sizes, *words]) == 0
        found: float = json.loads(capsys.readouterr().out)["modes"]["continuous"]["mean_e2el_s"]
        return found

    assert mean_e2el_s(1.5) > 1.4 * mean_e2el_s(1.0)


def test_a_page_draws_what_each_mode_makes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "advice.html"
    advised(capsys, "--html", str(page), "--title", "What to do", "--goodput", "ttft:500")
    text = page.read_text(encoding="utf-8")
    assert "<h1>What to do</h1>" in text
    assert text.count("<svg") == 4
    assert "<script" not in text
