"""``headway plan``: settings that serve takes, exit codes, load tests, and what is refused."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.config import load_settings
from headway.config.scheduling import scheduler_config
from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.core.scheduler import Scheduler
from headway.engine.journal import Journal
from headway.sim.simulation import simulate
from headway.workload import Arrival
from two_token_server import TwoTokens, serving

MACHINE = (
    *("--num-blocks", "2000", "--max-model-len", "1024", "--step-base-ms", "10"),
    *("--prefill-ms-per-token", "0.1", "--decode-ms-per-sequence", "1"),
)
FEW = ("--days", "4", "--screening-days", "1")
STREAM = (
    *("--request-rate", "5", "--duration-s", "6", "--prompt-tokens", "uniform:20:80"),
    *("--output-tokens", "10"),
)
EASY = ("--goodput", "ttft:500", "tpot:50")
TWO_CLASSES = """
duration_s = 10

[classes.chat]
ttft_ms = 500
tpot_ms = 50

[[streams]]
class = "chat"
tenant = "one"
request_rate = 4
prompt_tokens = 60
output_tokens = 10

[[streams]]
class = "chat"
tenant = "two"
request_rate = 2
prompt_tokens = 40
output_tokens = 10

[[streams]]
class = "batch"
request_rate = 1
prompt_tokens = 200
output_tokens = 20
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEADWAY_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["plan", "--json", *FEW, *arguments]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# ------------------------------------------------------------- plans


def test_the_settings_are_those_that_were_simulated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    workload, settings = tmp_path / "w.toml", tmp_path / "settings.toml"
    workload.write_text(TWO_CLASSES)
    found = planned(capsys, *MACHINE, "--workload", str(workload), "--write", str(settings))
    assert found["holds"]
    loaded = load_settings(settings)
    config = scheduler_config(
        loaded.settings, max_model_len=1024, num_blocks=2000, num_swap_blocks=0
    )
    chosen = found["chosen"]
    assert config.limits.max_num_seqs == chosen["num_seqs"]
    assert config.limits.max_num_batched_tokens == chosen["budget"]
    chat, batch = config.classes
    assert (chat.name, chat.ttft_target_s, chat.tpot_target_s) == ("chat", 0.5, 0.05)
    assert (batch.name, batch.best_effort, chat.best_effort) == ("batch", True, False)
    assert loaded.settings.kv.num_blocks == 2000
    assert settings.read_text() == found["settings"]
    capsys.readouterr()
    assert main(["config", "--config", str(settings)]) == 0


def test_all_classes_and_tenants_are_judged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    workload = tmp_path / "w.toml"
    workload.write_text(TWO_CLASSES)
    found = planned(capsys, *MACHINE, "--workload", str(workload))
    judged = [(each["class_name"], each["metric"]) for each in found["chosen"]["targets"]]
    assert sorted(judged) == [("batch", "e2el"), ("chat", "tpot"), ("chat", "ttft")]
    classes = {each["name"]: each for each in found["arithmetic"]["demand"]["classes"]}
    assert classes["chat"]["num_tenants"] == 2
    for each in found["chosen"]["targets"]:
        low, high = each["interval"]
        assert low < each["chance"] <= high
        assert len(each["by_day_s"]) == each["of"] == 4


def test_every_step_is_shown_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *FEW, *MACHINE, *STREAM, *EASY]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line[0] for line in lines if line[:1].isdigit()] == list("123456")
    assert "95 % interval" in captured.out
    assert "next best" in captured.out
    assert "what binds" in captured.out
    assert all(line.startswith("headway: ") for line in captured.err.splitlines())
    assert "4 simulated days can promise 80.0% at most" in captured.err  # too few for 95 %
    settings = captured.out.partition("settings (--write FILE)\n")[2]
    assert tomllib.loads(settings)["scheduler"]["policy"] == "slo"


def test_what_was_set_stays(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(
        capsys, *MACHINE, *STREAM, *EASY, "--max-num-seqs", "3", "--max-num-batched-tokens", "48",
        "--policy", "fcfs",
    )  # fmt: skip
    settings = tomllib.loads(found["settings"])["scheduler"]
    assert settings["max_num_seqs"] <= 3
    assert settings["max_num_batched_tokens"] == 48
    assert settings["policy"] == "fcfs"


def test_static_batches_wait_for_half_of_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, *MACHINE, *STREAM, "--goodput", "ttft:2000", "--batching", "static")
    wait_ms = tomllib.loads(found["settings"])["scheduler"]["max_waiting_time_ms"]
    assert wait_ms == pytest.approx(found["chosen"]["wait_s"] * 500, abs=0.1)


def test_targets_may_stand_in_the_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.toml"
    path.write_text("[classes.default]\nttft_p99_ms = 400\nweight = 3.0\n")
    found = planned(capsys, *MACHINE, *STREAM, "--config", str(path))
    (target,) = found["chosen"]["targets"]
    assert (target["metric"], target["limit_s"]) == ("ttft", 0.4)
    assert tomllib.loads(found["settings"])["classes"]["default"]["weight"] == 3.0


def test_a_device_shows_both_formulas(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = {
        "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 1000, "max_position_embeddings": 2048,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model))
    found = planned(capsys, "--device", "a10", "--model-config", str(path), *STREAM, *EASY)
    memory = found["arithmetic"]["memory"]
    assert memory["ungrouped_token_bytes"] == 2 * 4 * 512 * 2
    assert memory["token_bytes"] == memory["ungrouped_token_bytes"] / 4
    device = ("--device", "a10", "--model-config", str(path))
    assert "kv.capacity_bytes is not for --device" in refusal(
        capsys, *device, *STREAM, "--capacity-bytes", "1GiB"
    )


def test_nobody_may_come_on_a_day_that_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(
        capsys, *MACHINE, "--request-rate", "0.3", "--duration-s", "6", *EASY, "--days", "20"
    )
    (ttft, _) = found["chosen"]["targets"]
    assert None in ttft["by_day_s"]
    assert ttft["held"] == ttft["of"] == 20


def test_a_trace_beside_drawn_streams_is_planned_for_as_a_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace, workload = tmp_path / "trace.csv", tmp_path / "w.toml"
    rows = [f"{n},50,5,{'chat' if n < 80 else 'late'}" for n in range(100)]
    trace.write_text("\n".join(["at_s,prompt_tokens,output_tokens,class", *rows]) + "\n")
    workload.write_text(
        "duration_s = 10\n[classes.'*']\nttft_ms = 500\n"
        "[[streams]]\nclass = 'rare'\nrequest_rate = 0.3\n"
        f"[[streams]]\nsource = 'csv'\npath = '{trace}'\n"
    )
    found = planned(capsys, *MACHINE, "--workload", str(workload), "--days", "20")
    targets = {each["class_name"]: each for each in found["chosen"]["targets"]}
    assert set(targets) == {"chat", "late", "rare"}
    assert all(None in targets[name]["by_day_s"] for name in ("late", "rare"))  # nobody came
    assert found["holds"]


# ------------------------------------------------------------- what can't be held


def test_targets_that_no_batch_can_meet_are_named_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", *MACHINE, *STREAM, "--goodput", "ttft:5", "tpot:50"]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""  # nothing was simulated
    assert "TTFT p99 5 ms, and the best that can is 17" in captured.out
    found = planned(capsys, *MACHINE, *STREAM, "--goodput", "ttft:5", code=1)
    assert not found["meetable"]
    assert found["unmeetable"][0]["best_s"] == pytest.approx(0.018, rel=0.02)


def test_too_few_instances_end_with_1_and_write_no_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = tmp_path / "s.toml"
    heavy = ("--request-rate", "60", *STREAM[2:])
    found = planned(
        capsys, *MACHINE, *heavy, *EASY, "--max-instances", "1", "--write", str(settings), code=1
    )
    assert not found["holds"]
    assert found["settings"] is None
    assert found["chosen"]["instances"] == 1
    assert found["binding"]["what"] != "nothing"
    assert not settings.exists()


# ------------------------------------------------------------- journals


def test_a_journal_is_planned_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = SchedulerConfig(
        limits=SchedulerLimits(
            num_blocks=200,
            block_size=16,
            max_model_len=512,
            max_num_seqs=4,
            max_num_batched_tokens=128,
        ),
        classes=(ServiceClass(name="chat", ttft_target_s=1.0),),
    )
    arrivals = [
        Arrival(at_s=0.3 * n, prompt_tokens=30, output_tokens=8, class_name="chat")
        for n in range(30)
    ]
    path = tmp_path / "j"
    journal = Journal.open(path, Scheduler(config))
    simulate(config, arrivals, StepCosts(), journal=journal)
    journal.close()
    found = planned(capsys, *MACHINE, "--from-journal", str(path))
    assert found["holds"]
    assert found["workload"] == {"journal": str(path), "duration_s": None}
    (target,) = found["chosen"]["targets"]
    assert (target["class_name"], target["metric"], target["limit_s"]) == ("chat", "ttft", 1.0)
    assert any("the recording is 1 day long" in each for each in found["warnings"])
    short = planned(capsys, *MACHINE, "--from-journal", str(path), "--duration-s", "3")
    assert short["workload"]["duration_s"] == short["arithmetic"]["demand"]["duration_s"] == 3
    assert not any("1 day long" in each for each in short["warnings"])
    assert "--request-rate" in refusal(
        capsys, *MACHINE, "--from-journal", str(path), "--request-rate", "2"
    )


# ------------------------------------------------------------- load tests


class Handler(TwoTokens):
    """Answers two tokens, or that it can't, and notes the classes of who came."""

    classes: list[str]

    def take(self, body: bytes) -> None:
        self.classes.append(json.loads(body).get("service_tier", "default"))


@pytest.fixture
def handler() -> type[Handler]:
    return type("OwnHandler", (Handler,), {"classes": []})


@pytest.fixture
def url(handler: type[Handler]) -> Iterator[str]:
    with serving(handler) as found:
        yield found


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """A plan of half a second, with targets that a busy machine keeps too."""
    workload, path = tmp_path / "w.toml", tmp_path / "plan.json"
    workload.write_text(
        "duration_s = 0.5\n[classes.chat]\nttft_ms = 60000\n[[streams]]\nclass = 'chat'\n"
        "request_rate = 20\nprompt_tokens = 20\noutput_tokens = 2\n"
    )
    planned(capsys, *MACHINE, "--workload", str(workload), "--output", str(path))
    return path


def test_a_server_that_answers_in_time_holds(
    capsys: pytest.CaptureFixture[str], handler: type[Handler], url: str, plan: Path
) -> None:
    assert main(["plan", "--verify", url, "--plan", str(plan), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held"]
    assert found["num_completed"] == found["num_requests"] > 0
    assert set(handler.classes) == {"chat"}
    (target,) = found["targets"]
    assert (target["class_name"], target["metric"], target["share"]) == ("chat", "ttft", 0.99)
    assert len(target["simulated_s"]) == found["simulated"]["of"] == 4


def test_twice_the_load_sends_twice_as_much(
    capsys: pytest.CaptureFixture[str], url: str, plan: Path
) -> None:
    counts = []
    for load in ("1", "2", "3"):
        main(["plan", "--verify", url, "--plan", str(plan), "--json", "--load", load])
        found = json.loads(capsys.readouterr().out)
        counts.append(found["num_requests"])
    assert counts[0] < counts[1] < counts[2]
    assert found["simulated"] is None  # three times the load was not simulated


def test_a_server_that_fails_does_not_hold(
    capsys: pytest.CaptureFixture[str], handler: type[Handler], url: str, plan: Path
) -> None:
    handler.status = 503
    assert main(["plan", "--verify", url, "--plan", str(plan)]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "not held"
    assert "not served" in said


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    assert main(["plan", "--verify", "http://127.0.0.1:9", "--plan", str(plan)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no connection" in captured.err


# ------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--days", "0", *STREAM), "--days must be at least 1, not 0"),
        (("--max-instances", "0", *STREAM), "--max-instances must be at least 1"),
        (("--promise", "1.5", *STREAM), "--promise lies between 0 and 1, and is not 1.5"),
        (
            ("--write", "nowhere/s.toml", *STREAM),
            "nowhere/s.toml can't be written: there is no folder",
        ),
        (("--output", ".", *STREAM), ". can't be written: it is a folder"),
        (("--concurrency", "3"), "open loop"),
        (("--request-rate", "2", "--prompt-tokens", "2000"), "the longest request has 2064 tokens"),
        (("--plan", "p.json", *STREAM), "--plan goes with --verify URL"),
        (("--load", "2", *STREAM), "--load goes with --verify URL"),
        (("--timeout-s", "5", *STREAM), "--timeout-s goes with --verify URL"),
        ((), "say when requests come"),
    ],
)
def test_a_plan_that_can_not_be(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refusal(capsys, *MACHINE, *arguments)


def test_a_class_that_does_not_come_is_not_left_out_in_silence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "w.toml"
    path.write_text(TWO_CLASSES + "[[streams]]\nclass = 'rare'\nrequest_rate = 1e-6\n")
    said = refusal(capsys, *MACHINE, "--workload", str(path))
    assert "no request of class rare comes" in said


def test_reserved_slots_are_not_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("[classes.default]\nreserved_slots = 1\nreserved_blocks = 9\n")
    said = refusal(capsys, *MACHINE, *STREAM, "--config", str(path))
    assert "classes.default.reserved_slots" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--verify needs --plan FILE"),
        (("--plan", "{plan}", "--device", "a10"), "--device makes a plan"),
        (("--plan", "{plan}", "--days", "3"), "--days makes a plan"),
        (("--plan", "{plan}", "--tensor-parallel", "2"), "--tensor-parallel makes a plan"),
        (("--plan", "{plan}", "--request-rate", "3"), "--request-rate makes a plan"),
        (("--plan", "{plan}", "--max-num-seqs", "3"), "--max-num-seqs makes a plan"),
        (("--plan", "{plan}", "--load", "0"), "--load must be above 0, not 0"),
        (("--plan", "{missing}"), "can't be read"),
        (("--plan", "{other}"), "no plan of headway plan --output"),
        (("--plan", "{list}"), "no plan of headway plan --output"),
        (("--plan", "{text}"), "is no JSON"),
    ],
)
def test_a_load_test_that_can_not_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    for name, content in (("plan", "{}"), ("other", "{}"), ("list", "[]"), ("text", "plan")):
        (tmp_path / name).write_text(content)
    names = {name: str(tmp_path / name) for name in ("plan", "other", "list", "text", "missing")}
    filled = [each.format(**names) for each in arguments]
    assert said in refusal(capsys, "--verify", "http://127.0.0.1:9", *filled)


@pytest.mark.parametrize("lost", ["workload", "terms", "loads", "chosen"])
def test_a_plan_that_lacks_a_part_is_none(
    capsys: pytest.CaptureFixture[str], plan: Path, lost: str
) -> None:
    found = json.loads(plan.read_text())
    del found[lost]
    plan.write_text(json.dumps(found))
    capsys.readouterr()
    said = refusal(capsys, "--verify", "http://127.0.0.1:9", "--plan", str(plan))
    assert "no plan of headway plan --output" in said
    assert lost in said


def test_a_plan_that_could_not_be_met_is_not_tested(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    arguments = [*MACHINE, *STREAM, "--goodput", "ttft:5", "--output", str(path)]
    planned(capsys, *arguments, code=1)
    said = refusal(capsys, "--verify", "http://127.0.0.1:9", "--plan", str(path))
    assert "can't be met" in said
