"""``headway simulate``: workloads and machines from flags, and the same report as a load test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.core.costs import StepCosts
from headway.profiles.fitted import FitError, FittedCosts
from headway.profiles.profile import Profile, write_profile

MODEL = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}
SIZED = ("--num-blocks", "500", "--max-model-len", "1024")
FEW = ("--num-requests", "20", "--request-rate", "5", "--prompt-tokens", "50")


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["simulate", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["simulate", *arguments]) == 2
    return capsys.readouterr().err


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    return str(folder / "config.json")


def test_settings_say_what_steps_cost(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(
        capsys, *SIZED, *FEW, "--step-base-ms", "10", "--prefill-ms-per-token", "0",
        "--decode-ms-per-sequence", "0", "--output-tokens", "9",
    )  # fmt: skip
    assert found["completed"] == 20
    assert found["backend"] == "simulated"
    assert found["p50_tpot_ms"] == pytest.approx(10.0)
    assert found["total_output_tokens"] == 180
    assert found["num_kv_blocks"] == 500


def test_the_same_seed_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [simulated(capsys, *SIZED, *FEW, "--seed", "7") for _ in range(2)]
    other = simulated(capsys, *SIZED, *FEW, "--seed", "8")
    for each in (*runs, other):
        del each["wall_s"]
    assert runs[0] == runs[1]
    assert runs[0]["mean_ttft_ms"] != other["mean_ttft_ms"]


def test_a_device_and_a_model(capsys: pytest.CaptureFixture[str], model: str) -> None:
    found = simulated(capsys, "--device", "l4", "--model-config", model, *FEW)
    assert found["model_id"] == "tiny on l4"
    assert found["completed"] == 20
    assert found["num_kv_blocks"] > 1000


def test_a_profile_says_when_it_is_beyond_its_range(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ranges = {"step": (1.0, 1.0), "decodes": (0.0, 2.0), "decode_context": (0.0, 1e6)}
    device = FittedCosts(
        costs_s={"step": 0.01, "decodes": 0.05},
        ranges=ranges,
        error=FitError(median=0.01, p90=0.02, num_steps=9),
    )
    path = tmp_path / "p.json"
    write_profile(path, Profile(name="mine", source="made up", device=device))
    found = simulated(capsys, *SIZED, *FEW, "--profile", str(path))
    assert found["model_id"] == "mine"
    assert any("beyond what was measured" in each for each in found["warnings"])


def test_host_time_of_a_profile_is_spent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = FitError(median=0.0, p90=0.0, num_steps=9)
    host = FittedCosts(side="host", costs_s={"step": 0.004}, ranges={}, error=error)
    for name, part, overlaps in (("no", None, False), ("yes", host, False), ("hid", host, True)):
        costs = StepCosts(base_s=0.01, prefill_token_s=0.0, decode_s=0.0)
        profile = Profile(name=name, source="", device=costs, host=part, overlaps=overlaps)
        write_profile(tmp_path / name, profile)
    tpots = [
        simulated(capsys, *SIZED, *FEW, "--profile", str(tmp_path / name))["p50_tpot_ms"]
        for name in ("no", "yes", "hid")
    ]
    assert tpots == [pytest.approx(10.0), pytest.approx(14.0), pytest.approx(10.0)]


def test_replicas_share_the_load(capsys: pytest.CaptureFixture[str]) -> None:
    load = (*SIZED, "--num-requests", "300", "--request-rate", "200")
    one = simulated(capsys, *load)
    four = simulated(capsys, *load, "--replicas", "4", "--router", "round-robin")
    assert (one["router"], four["router"]) == (None, "round-robin")
    assert four["p99_ttft_ms"] < one["p99_ttft_ms"]
    assert four["completed"] == 300


def test_several_seeds_have_intervals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page, output = tmp_path / "page.html", tmp_path / "out.json"
    found = simulated(
        capsys, *SIZED, *FEW, "--seeds", "3", "--html", str(page), "--output", str(output)
    )
    each = found["intervals"]["all"]["mean_ttft_ms"]
    assert each["low"] < each["mean"] < each["high"]
    assert found["num_seeds"] == 3
    assert "intervals over 3 seeds" in page.read_text()
    assert json.loads(output.read_text()) == found


def test_the_costs_that_flags_give_are_used_without_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", *SIZED, *FEW, "--json", "--step-base-ms", "200"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["p50_tpot_ms"] > 200
    assert "no effect" not in err


def test_people_see_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *SIZED, *FEW, "--seeds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "20 of 20 requests completed" in shown
    assert "95 % intervals over 2 seeds" in shown


def test_classes_of_a_workload_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    workload = tmp_path / "w.toml"
    workload.write_text(
        "duration_s = 10\n[classes.chat]\nttft_ms = 500\n"
        '[[streams]]\nclass = "chat"\nrequest_rate = 3\n'
        '[[streams]]\nclass = "batch"\nconcurrency = 2\n'
        "cancel_share = 0.5\ncancel_after_tokens = 3\n"
    )
    settings = tmp_path / "h.toml"
    settings.write_text("[classes.chat]\nweight = 4\n[classes.batch]\n")
    found = simulated(capsys, *SIZED, "--workload", str(workload), "--config", str(settings))
    assert set(found["classes"]) == {"chat", "batch"}
    assert found["classes"]["chat"]["attained"] == 1.0
    assert found["num_cancelled"] > 0


def test_nothing_completed_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    long = ("--prompt-tokens", "900", "--output-tokens", "900")
    assert main(["simulate", *SIZED, "--num-requests", "3", "--request-rate", "1", *long]) == 1
    assert "context_length_exceeded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--replicas", "0"), "--replicas must be at least 1"),
        (("--seeds", "0"), "--seeds must be at least 1"),
        (("--until-s", "0"), "--until-s must be above 0"),
        (("--device", "l4"), "--device needs --model-config"),
        (("--weights", "int8"), "--weights goes with --device"),
        (("--tensor-parallel", "2"), "--tensor-parallel goes with --device"),
        (("--profile", "p", "--device", "l4"), "leave out one"),
        (("--profile", "nowhere.json"), "nowhere.json can't be read"),
    ],
)
def test_refusals(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refusal(capsys, *SIZED, *FEW, *arguments)


def test_an_unknown_device_is_refused(capsys: pytest.CaptureFixture[str], model: str) -> None:
    said = refusal(capsys, *FEW, "--device", "abacus", "--model-config", model)
    assert "no device is called abacus" in said


def test_who_names_no_class_is_in_that_in_which_a_server_would_have_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = tmp_path / "headway.toml"
    settings.write_text("[classes.interactive]\nweight = 8\n[classes.batch]\nweight = 1\n")
    found = simulated(capsys, *SIZED, *FEW, "--config", str(settings))
    assert (found["completed"], list(found["classes"])) == (20, ["interactive"])
    told = refusal(capsys, *SIZED, *FEW, "--config", str(settings), "--class", "other")
    assert "the settings have no class other, but interactive, batch" in told
