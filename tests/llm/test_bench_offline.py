"""``headway bench --offline``: the engine in this process under load, with a small model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from small_model import write_model

from headway.cli.main import main

LOAD = ["--request-rate", "inf", "--num-requests", "8", "--output-tokens", "5"]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    for name in os.environ:
        if name.startswith("HEADWAY_"):
            monkeypatch.delenv(name)
    model = write_model(tmp_path / "model")
    simulated = ["--executor", "simulated", "--step-base-ms", "0", "--prefill-ms-per-token", "0"]
    sizes = ["--num-blocks", "64", "--decode-ms-per-sequence", "0"]
    return ["bench", "--offline", "--model", str(model), *simulated, *sizes, "--json"]


def test_every_request_is_answered_at_its_length(offline: list[str], capsys) -> None:
    assert main([*offline, *LOAD, "--prompt-tokens", "20"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["completed"], printed["model_id"]) == (8, "model")
    assert (printed["total_input_tokens"], printed["total_output_tokens"]) == (160, 40)
    assert printed["backend"] == "offline"


def test_real_prompts_are_encoded(offline: list[str], tmp_path: Path, capsys) -> None:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "abc", "output_tokens": 4},
        {"messages": [{"role": "user", "content": "hi"}], "output_tokens": 6},
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert main([*offline, "--source", "jsonl", "--path", str(path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["total_input_tokens"] == len("abc") + len("u:hi\na:")
    assert printed["total_output_tokens"] == 10


def test_clients_leave_and_stall(offline: list[str], capsys) -> None:
    leaving = ["--cancel-share", "0.5", "--cancel-after-tokens", "2"]
    stalling = ["--stall-share", "0.5", "--stall-s", "0.01"]
    many = ["--request-rate", "inf", "--num-requests", "30", "--output-tokens", "30"]
    assert main([*offline, *many, *leaving, *stalling]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["num_cancelled"] + printed["num_stalled"] == 30
    assert min(printed["num_cancelled"], printed["num_stalled"]) >= 5
    assert printed["failed"] == 0


def test_what_the_engine_refuses_is_counted_by_kind(offline: list[str], capsys) -> None:
    too_long = ["--request-rate", "inf", "--num-requests", "3", "--prompt-tokens", "600"]
    assert main([*offline, *too_long]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["errors_by_kind"] == {"refused context_length_exceeded": 3}
    assert "3 of 3 requests are longer" in printed["warnings"][0]


def test_an_unknown_class_is_refused(offline: list[str], capsys) -> None:
    assert main([*offline, *LOAD, "--class", "nobody"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["errors_by_kind"].values()) == [8]
