"""The replay of another engine's run, on a run of three requests that the test makes."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.limits import VictimChoice
from headway.profiles.tables import ModelFacts
from headway.sim.foreign import FIGURES, SETUPS, Setup, errors, judge, read_run
from headway.sim.foreign.figures import figures
from headway.sim.foreign.replay import limits, make_prompts
from headway.sim.foreign.setups import Control
from headway.sim.foreign.verdict import compare
from headway.workload import WorkloadError

SETUP = Setup(
    name="small",
    title="a small run",
    stem="small",
    workload="few",
    sharing="sharing.csv",
    profile="kernels",
    model=ModelFacts(num_layers=1, hidden_size=8),
    with_skew=False,
    bounds={figure.key: 5.0 for figure in FIGURES},
    controls=(Control("half the blocks", {"block_factor": 0.5}),),
)
#: arrival (wall clock), then by the engine's clock: queued, first token, last token
REQUESTS = (
    {"arrival_time": 1000.0, "queued_ts": 50.0008, "first_token_ts": 51.0, "last_token_ts": 54.0},
    {"arrival_time": 1001.0, "queued_ts": 51.5, "first_token_ts": 53.0, "last_token_ts": 53.0},
    {"arrival_time": 1002.0, "queued_ts": 52.1, "first_token_ts": 54.0, "last_token_ts": 56.0},
)
LENGTHS = ((40, 4), (20, 1), (50, 3))
ARRIVALS_NS = (0, 1_000_000_000, 2_000_000_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path)
    write_kernels(tmp_path / "profile" / "kernels")
    return tmp_path


def write_run(folder: Path) -> None:
    meta = {
        "engine_kwargs": {"max_num_seqs": 4, "max_num_batched_tokens": 64},
        "kv_cache": {"num_gpu_blocks": 100, "block_size": 16},
    }
    (folder / "vllm_small.meta.json").write_text(json.dumps(meta))
    rows: list[dict[str, Any]] = [
        {**times, "input_toks": prompt, "output_toks": output, "request_id": "x"}
        for times, (prompt, output) in zip(REQUESTS, LENGTHS, strict=True)
    ]
    (folder / "vllm_small.requests.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    lines = [f"{at},{i},{o}" for at, (i, o) in zip(ARRIVALS_NS, LENGTHS, strict=True)]
    header = "arrival_time_ns,input_toks,output_toks"
    (folder / "few.lengths.csv").write_text("\n".join([header, *lines]) + "\n")
    sharing = "request,longest_prefix_with,shared_full_blocks\n2,0,2\n"
    (folder / "sharing.csv").write_text(sharing)


def write_kernels(folder: Path) -> None:
    """Every step takes a second, whatever is in it: all of it in the sampler."""
    folder.mkdir(parents=True)
    layers = ("embedding", "final_layernorm", "layernorm", "qkv_proj", "rotary_emb", "o_proj")
    layers += ("gate_up_proj", "act_fn", "down_proj")
    dense = ["layer,tokens,time_us", *(f"{name},1,0" for name in layers)]
    (folder / "dense.csv").write_text("\n".join(dense) + "\n")
    rows = "layer,sequences,time_us\nlm_head,1,0\nsampler,1,1000000\n"
    (folder / "per_sequence.csv").write_text(rows)
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    parts = ("16,0,0,0,0", "0,0,1,16,0", "16,0,1,16,0")
    (folder / "attention.csv").write_text("\n".join([header, *parts]) + "\n")


def test_real_times_count_from_the_true_arrival(folder: Path) -> None:
    """The clocks are 950 s apart, found from the request that was read the soonest."""
    real = read_run(folder, SETUP).real
    assert real["ttft_mean"] == pytest.approx((1 + 2 + 2) / 3)
    assert real["ttft_p50"] == pytest.approx(2)
    assert real["tpot_mean"] == pytest.approx((3 / 3 + 2 / 2) / 2), "one token has none"
    assert real["latency_mean"] == pytest.approx((4 + 2 + 4) / 3)
    assert real["throughput"] == pytest.approx(8 / 6)


def test_prompts_begin_alike_where_the_real_ones_did(folder: Path) -> None:
    first, second, third = make_prompts(read_run(folder, SETUP))
    assert [len(each) for each in (first, second, third)] == [40, 20, 50]
    assert third[:32] == first[:32]
    assert third[32] != first[32]
    assert not {*second} & {*first, *third}


def test_the_engine_is_set_up_as_the_other_one_was(folder: Path) -> None:
    data = read_run(folder, SETUP)
    found = limits(SETUP, data)
    assert (found.num_blocks, found.block_size) == (99, 16), "one block is never used"
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (4, 64)
    assert (found.max_passes, found.max_plans_in_flight) == (0, 2)
    assert found.preemption_victim is VictimChoice.NEWEST
    assert limits(replace(SETUP, num_blocks=10), data).num_blocks == 9
    with pytest.raises(WorkloadError, match="has not recorded its KV blocks"):
        limits(SETUP, replace(data, num_blocks=None))


def test_a_run_is_judged_figure_by_figure(folder: Path) -> None:
    """Alone: 1 s to each token. The second comes at 1 s, during the second step."""
    verdict = judge(folder, SETUP)
    rows = {row.figure.key: row for row in verdict.rows}
    assert [row.figure for row in verdict.rows] == list(FIGURES)
    assert rows["tpot_mean"].simulated == pytest.approx(1.0)
    assert rows["tpot_mean"].error == pytest.approx(0.0, abs=0.01)
    assert rows["tpot_mean"].holds
    assert verdict.replayed.num_steps == 6
    (control,) = verdict.controls
    assert control.what == "half the blocks"


def test_holding_takes_all_bounds_and_all_controls() -> None:
    real = figures([1.0], [1.0], [1.0], 1.0)
    near = {**real, "ttft_p50": 1.04, "throughput": 0.96}
    far = {**real, "ttft_p50": 1.2}
    bounds = {figure.key: 5.0 for figure in FIGURES}
    assert all(row.holds for row in compare(near, real, bounds, {}))
    beyond = [row.figure.key for row in compare(far, real, bounds, {}) if not row.holds]
    assert beyond == ["ttft_p50"]
    del bounds["ttft_p50"]
    assert all(row.holds for row in compare(far, real, bounds, {}))


def test_errors_are_percent_above_the_real_figure() -> None:
    found = errors(figures([2.0], [1.0], [3.0], 90.0), figures([1.0], [1.0], [4.0], 100.0))
    assert found["ttft_p99"] == pytest.approx(100)
    assert found["tpot_mean"] == 0
    assert found["latency_p90"] == pytest.approx(-25)
    assert found["throughput"] == pytest.approx(-10)


def test_controls_change_what_a_setup_has() -> None:
    names = {field.name for field in fields(Setup)}
    for setup in SETUPS:
        assert setup.controls
        for control in setup.controls:
            assert set(control.changes) <= names
            assert control.applied_to(setup) != setup
        assert len(setup.published) == len(FIGURES)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vllm_small.requests.jsonl", None, "can't be read"),
        ("vllm_small.requests.jsonl", "{}\n", "no 'arrival_time'"),
        ("vllm_small.meta.json", "{", "meta"),
        ("few.lengths.csv", "arrival_time_ns,input_toks,output_toks\n0,1,1\n", "are not of few"),
        ("sharing.csv", "request\n1\n", "no 'longest_prefix_with'"),
    ],
)
def test_files_that_are_no_run_are_refused(
    folder: Path, name: str, text: str | None, message: str
) -> None:
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(WorkloadError, match=message):
        read_run(folder, SETUP)


def test_nobody_begins_like_one_who_comes_later(folder: Path) -> None:
    header = "request,longest_prefix_with,shared_full_blocks"
    (folder / "sharing.csv").write_text(f"{header}\n1,2,1\n")
    with pytest.raises(WorkloadError, match="request 1 can't share with 2"):
        make_prompts(read_run(folder, SETUP))
