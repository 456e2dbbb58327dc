"""What batches and instances buy: each verdict by a small workload, and figures in closed form."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.planning.trade import with_limit
from headway.planning.trade_run import full_throughput, measure
from headway.planning.trade_windows import Window
from headway.sim.replica import Machine
from headway.workload import Arrival, Targets, Workload

BASE_S, PREFILL_S, DECODE_S = 0.02, 0.0001, 0.002


def machine(limit: int, **classes: Any) -> Machine:
    limits = SchedulerLimits(
        num_blocks=2000,
        block_size=16,
        max_model_len=4096,
        max_num_seqs=limit,
        max_num_batched_tokens=4096,
    )
    costs = StepCosts(base_s=BASE_S, prefill_token_s=PREFILL_S, decode_s=DECODE_S)
    config = SchedulerConfig(limits=limits, classes=(ServiceClass(**classes),), costs=costs)
    return Machine(config=config, cost=costs)


def workload(times: list[float], prompt: int, output: int, ttft_s: float = 1.0) -> Workload:
    arrivals = [
        Arrival(at_s=each, prompt_tokens=prompt, output_tokens=output, max_tokens=output)
        for each in times
    ]
    return Workload(arrivals, (), float("inf"), {"*": Targets(ttft_s=ttft_s)})


# -------------------------------------------------------------------- figures in closed form


@pytest.mark.parametrize("limit", [1, 4, 16])
def test_full_load_of_equal_requests_is_one_batch_after_another(limit: int) -> None:
    prompt, output = 100, 20
    load = workload([0.0, 1.0], prompt, output)
    batch_s = BASE_S + limit * prompt * PREFILL_S + (output - 1) * (BASE_S + limit * DECODE_S)
    found = full_throughput(machine(limit), load.arrivals, load)
    assert found == pytest.approx(limit * output / batch_s)


def test_full_load_knows_no_queue_limits_and_no_timeouts() -> None:
    impatient = machine(2, max_queue_requests=1, queue_timeout_s=0.1, request_timeout_s=0.5)
    load = workload([0.0, 1.0], 100, 20)
    patient = full_throughput(machine(2), load.arrivals, load)
    assert full_throughput(impatient, load.arrivals, load) == patient


def test_requests_far_apart_leave_the_rest_of_the_time_unused() -> None:
    prompt, output, count = 200, 11, 10
    load = workload([10.0 * n for n in range(count)], prompt, output)
    first_s, further_s = BASE_S + prompt * PREFILL_S, BASE_S + DECODE_S
    found = measure([machine(8)] * 2, load, Window("all", 0.0, 100.0, count))
    assert found.p99_ttft_s == pytest.approx(first_s)
    assert found.p99_tpot_s == pytest.approx(further_s)
    assert found.busy_share == pytest.approx(count * (first_s + 10 * further_s) / 200)
    assert found.output_throughput == pytest.approx(count * output / 100)
    assert found.mean_batch == pytest.approx(1)
    assert found.attained == 1


def test_only_requests_of_the_window_are_judged() -> None:
    load = workload([0.0] * 40 + [100.0], 100, 20, ttft_s=0.2)
    crowded = measure([machine(1)], load, Window("crowd", 0.0, 50.0, 40))
    alone = measure([machine(1)], load, Window("alone", 90.0, 110.0, 1))
    assert crowded.attained < 0.1
    assert alone.attained == 1
    assert alone.output_throughput == 1
    empty = measure([machine(1)], load, Window("nobody", 60.0, 80.0, 0))
    assert (empty.attained, empty.output_throughput, empty.busy_share) == (1, 0, 0)


def test_a_limit_changes_nothing_else() -> None:
    one, other = machine(4), with_limit(machine(8), 4)
    assert one.config == other.config


# -------------------------------------------------------------------- verdicts

MACHINE = {
    "--executor": "simulated",
    "--num-blocks": "2000",
    "--max-model-len": "4096",
    "--max-num-seqs": "8",
    "--step-base-ms": "20",
    "--prefill-ms-per-token": "0.1",
    "--decode-ms-per-sequence": "2",
    "--prompt-tokens": "100",
    "--output-tokens": "40",
    "--process": "constant",
    "--rate-steps": "12:0.5,12:6",
    "--window-s": "6",
}


def flags(**changes: str) -> list[str]:
    named = {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    return [word for pair in (MACHINE | named).items() for word in pair]


def traded(
    capsys: pytest.CaptureFixture[str], goodput: str, *more: str, **changes: str
) -> dict[str, Any]:
    words = [*flags(**changes), "--goodput", *goodput.split(), *more]
    assert main(["advise", "--trade", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_one_more_instance_where_the_batch_binds_each_further_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 8 a second come, and an instance serves 5 with batches of 8; steps of 10 take 40 ms
    found = traded(capsys, "ttft:1000 tpot:40", rate_steps="12:0.5,12:8")
    peak = found["windows"]["peak"]
    assert (found["verdict"], peak["instances"], peak["max_num_seqs"]) == ("scale", 2, 8)
    batch, instance = peak["gains"]["twice the batch"], peak["gains"]["one more instance"]
    assert instance["attained"] > batch["attained"] + 0.5
    assert batch["p99_tpot"] > 1.2 > 1 > instance["p99_tpot"]
    assert peak["attained_alone"] is None
    trough = found["windows"]["trough"]
    assert trough["verdict"] == "keep"
    assert trough["gains"]["one more instance"]["attained"] == 0
    assert trough["gains"]["one more instance"]["headroom"] > 0


def test_a_larger_batch_where_further_tokens_have_time(capsys: pytest.CaptureFixture[str]) -> None:
    # 7 a second come; with batches of 16 an instance serves as many
    found = traded(capsys, "ttft:1000 tpot:80", rate_steps="12:0.5,12:7")
    peak = found["windows"]["peak"]
    assert (found["verdict"], peak["instances"], peak["max_num_seqs"]) == ("batch", 1, 16)
    assert "batch more" in found["advice"]


def test_a_smaller_batch_where_only_further_tokens_are_late(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = traded(capsys, "tpot:32")  # steps of 8 take 36 ms, steps of 4 take 28 ms
    peak = found["windows"]["peak"]
    assert (found["verdict"], peak["max_num_seqs"]) == ("batch", 4)
    assert "batch less" in found["advice"]


def test_instances_that_nobody_needs_are_taken_away(capsys: pytest.CaptureFixture[str]) -> None:
    found = traded(capsys, "ttft:1000", "--replicas", "3", rate_steps="24:0.5")
    (steady,) = found["windows"].values()
    assert list(found["windows"]) == ["steady"]
    assert (found["verdict"], steady["instances"]) == ("shrink", 2)
    (present,) = (each for each in steady["settings"] if each["is_present"])
    assert present["headroom"]["mean"] > 0.9


def test_nothing_gains_where_one_alone_is_late(capsys: pytest.CaptureFixture[str]) -> None:
    found = traded(capsys, "tpot:21")
    peak = found["windows"]["peak"]
    assert (found["verdict"], peak["attained_alone"]) == ("nothing", 0)
    assert "a faster machine" in found["advice"]


def test_a_step_that_is_not_enough_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = traded(capsys, "ttft:400 tpot:40", rate_steps="6:0.5,6:24", window_s="3")
    assert found["verdict"] == "scale"
    assert "not enough" in found["advice"]
    assert "--replicas 3 looks further" in found["advice"]
    assert found["windows"]["peak"]["instances"] == 3


def test_every_setting_obeys_its_bounds_and_headroom_grows_with_instances(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = traded(capsys, "ttft:1000", "--replicas", "2")
    for window in found["windows"].values():
        settings = {(e["instances"], e["max_num_seqs"]): e for e in window["settings"]}
        assert set(settings) == {(n, limit) for n in (1, 2, 3, 4) for limit in (4, 8, 16, 32)}
        assert [key for key, each in settings.items() if each["is_present"]] == [(2, 8)]
        for (count, limit), each in settings.items():
            assert 0 <= each["mean_batch"]["mean"] <= limit
            assert 0 <= each["busy_share"]["mean"] <= 1 + 1e-9
            assert 0 <= each["attained"]["mean"] <= 1
            one = settings[1, limit]["full_output_throughput"]
            assert each["full_output_throughput"] == pytest.approx(count * one)
            if count > 1:
                fewer = settings[count - 1, limit]
                assert each["mean_batch"]["mean"] <= fewer["mean_batch"]["mean"] + 0.1


# -------------------------------------------------------------------- the command


def test_limits_that_cannot_be_are_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = traded(capsys, "ttft:1000", max_num_batched_tokens="30")
    (warning,) = found["warnings"]
    assert "batch limit of 32 is left out" in warning
    assert {each["max_num_seqs"] for each in found["windows"]["peak"]["settings"]} == {4, 8, 16}


def test_files_have_every_setting_and_the_page_draws_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, rows = tmp_path / "trade.html", tmp_path / "trade.csv"
    found = traded(capsys, "ttft:1000", "--html", str(page), "--csv", str(rows))
    with rows.open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == sum(len(each["settings"]) for each in found["windows"].values())
    assert {each["window"] for each in table} == {"trough", "peak"}
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 8
    assert "<script" not in text
    assert "nan" not in text


def test_seeds_show_their_spread_and_are_refused_where_nothing_is_drawn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert traded(capsys, "ttft:1000")["num_seeds"] == 1  # constant gaps and lengths
    changes = {"process": "poisson", "rate_steps": "4:1,4:16", "output_tokens": "6"}
    two = ("--seeds", "2")
    drawn = traded(capsys, "ttft:100", *two, window_s="2", max_num_seqs="2", **changes)
    assert (drawn["num_seeds"], drawn["num_other_seeds"]) == (2, 2)
    shares = [each["attained"] for each in drawn["windows"]["peak"]["settings"]]
    assert any(each["least"] < each["mean"] < each["most"] for each in shares)
    assert main(["advise", "--trade", *flags(), "--goodput", "ttft:9", "--seeds", "2"]) == 2
    assert "nothing is drawn" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trade"], "nothing is promised"),
        (["--trade", "--goodput", "ttft:9", "--class", "chat"], "[classes.chat]"),
        (["--trade", "--goodput", "ttft:9", "--window-s", "99"], "two must fit"),
        (["--trade", "--goodput", "ttft:9", "--replicas", "0"], "--replicas must be at least 1"),
        (["--trade", "--goodput", "ttft:9", "--hard"], "--hard is about one instance"),
        (["--trade", "--isolation"], "not allowed with"),
        (["--replicas", "2"], "--replicas goes with --trade"),
        (["--seeds", "2"], "--seeds goes with --trade"),
        (["--window-s", "2"], "--window-s goes with --trade"),
        (["--trade", "--goodput", "ttft:9", "--window-s", "1e-9"], "most would be empty"),
        (["--trade", "--goodput", "other/ttft:9"], "class other has targets, and no stream"),
        (["--html", "/no-such-folder/page.html"], "there is no folder /no-such-folder"),
        (["--csv", "/"], "/ can't be written: it is a folder"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    without_window = flags()[:-2]
    assert main(["advise", *without_window, *words]) == 2
    assert said in capsys.readouterr().err
