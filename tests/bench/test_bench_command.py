"""``headway bench`` as a command: its flags, files, exit codes, and interruption."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli.main import main
from two_token_server import TwoTokens, serving


class Handler(TwoTokens):
    """Answers two tokens, or nothing at all until it is told."""

    hang: threading.Event | None = None
    seen: threading.Event

    def take(self, body: bytes) -> None:
        self.seen.set()
        if self.hang is not None:
            self.hang.wait(30)


@pytest.fixture
def handler() -> type[Handler]:
    return type("OwnHandler", (Handler,), {"seen": threading.Event()})


@pytest.fixture
def url(handler: type[Handler], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in os.environ:
        if name.startswith("HEADWAY_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)
    with serving(handler) as found:
        yield found


FAST = ["--request-rate", "inf", "--num-requests", "8", "--output-tokens", "2"]


def test_targets_of_flags_stand_over_the_same_ones_of_the_file(url: str, tmp_path: Path) -> None:
    path, made = tmp_path / "workload.toml", tmp_path / "x.json"
    path.write_text(
        "[classes.fast]\nttft_ms = 60000\ne2el_ms = 0.000001\n"
        '[[streams]]\nclass = "fast"\nrequest_rate = inf\nnum_requests = 2\noutput_tokens = 2\n'
    )
    arguments = ["bench", url, "--workload", str(path), "--output", str(made), "--goodput"]
    assert main([*arguments, "fast/ttft:50000"]) == 0
    assert json.loads(made.read_text())["attained"] == 0.0, "the other target is still there"
    assert main([*arguments, "fast/e2el:50000"]) == 0
    assert json.loads(made.read_text())["attained"] == 1.0


def test_everything_is_written(url: str, tmp_path: Path, capsys) -> None:
    files = {name: str(tmp_path / f"x.{name}") for name in ("json", "csv", "html")}
    arguments = ["bench", url, *FAST, "--goodput", "ttft:60000", "--require", "0.99", "--detailed"]
    arguments += ["--output", files["json"], "--csv", files["csv"], "--html", files["html"]]
    assert main([*arguments, "--json", "--title", "mine"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(Path(files["json"]).read_text())
    assert printed["completed"] == 8
    assert printed["request_rate"] == "inf"
    assert printed["label"] == "mine"
    assert len(printed["ttfts"]) == 8
    with open(files["csv"], newline="") as file:
        assert len(list(csv.DictReader(file))) == 8
    assert "<h1>mine</h1>" in Path(files["html"]).read_text(encoding="utf-8")


def test_without_json_there_is_a_table(url: str, capsys) -> None:
    closed = ["--concurrency", "2", "--num-requests", "6"]
    assert main(["bench", url, *closed, "--endpoint", "completions"]) == 0
    captured = capsys.readouterr()
    assert "6 of 6 requests completed" in captured.out
    assert "TTFT" in captured.out


def test_a_share_that_is_not_met_is_exit_1(url: str, capsys) -> None:
    impossible = ["--goodput", "ttft:0.0001", "--require", "0.5"]
    assert main(["bench", url, *FAST, *impossible]) == 1
    assert "0.0 % met all targets" in capsys.readouterr().out


def test_a_workload_file_says_it_all(url: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "workload.toml"
    path.write_text(
        "[classes.fast]\nttft_ms = 60000\n"
        '[[streams]]\nclass = "fast"\nrequest_rate = inf\nnum_requests = 3\n'
        '[[streams]]\nclass = "slow"\ntenant = "t"\nconcurrency = 1\nnum_requests = 2\n'
    )
    assert main(["bench", url, "--workload", str(path), "--json", "--seed", "7"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {name: each["completed"] for name, each in printed["classes"].items()} == {
        "fast": 3,
        "slow": 2,
    }
    assert printed["classes"]["fast"]["attained"] == 1.0
    assert (printed["seed"], printed["max_concurrency"]) == (7, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-requests", "5"], "say when requests come"),
        (["--request-rate", "0"], "request_rate must be above 0"),
        (["--request-rate", "1", "--concurrency", "1"], "leave out one"),
        (["--request-rate", "x"], "argument --request-rate: invalid float value"),
        ([*FAST, "--prompt-tokens", "many"], "'many' is no length in tokens"),
        ([*FAST, "--goodput", "ttft"], "--goodput ttft: use ttft:MS"),
        ([*FAST, "--goodput", "ttft:0"], "--goodput ttft:0"),
        ([*FAST, "--source", "azure"], "source azure needs path"),
        (["--source", "azure", "--path", "/absent"], "/absent can't be read"),
        ([*FAST, "--workload", "x.toml"], "it goes into the --workload file"),
        (["--workload", "/absent.toml"], "/absent.toml can't be read"),
        ([*FAST, "--max-num-seqs", "4"], "--max-num-seqs sets up an engine in this process"),
        ([*FAST, "--header", "x"], "--header 'x': use NAME:VALUE"),
        ([*FAST, "--header", "x: a\x01"], "has characters that headers can't have"),
        ([*FAST, "--extra-body", "{"], "--extra-body is no JSON"),
        ([*FAST, "--extra-body", "[]"], "--extra-body must be a JSON object"),
        ([*FAST, "--prompt-format", "ids", "--endpoint", "chat"], "needs --endpoint completions"),
        ([*FAST, "--require", "2"], "--require is a share"),
        ([*FAST, "--require", "0.9"], "--require needs targets"),
        ([*FAST, "--goodput", "ttft:1", "ttft:2"], "--goodput ttft:2: ttft is there twice"),
        ([*FAST, "--goodput", "slow/ttft:1"], "class slow has targets, and no stream"),
        ([*FAST, "--stall-s", "2"], "need stall_share"),
        ([*FAST, "--timeout-s", "0"], "--timeout-s must be above 0"),
        ([*FAST, "--warmup", "-1"], "--warmup must not be negative"),
        ([*FAST, "--ramp", "x"], "--ramp x: use RATE or RATE:FACTOR"),
        ([*FAST, "--ramp", "1:1"], "grows by a factor above 1"),
        ([*FAST, "--offline"], "--offline needs no URL"),
        ([*FAST, "--model", "other"], "serves no model other; it has: tiny"),
        ([*FAST, "--nub-requests", "1"], "did you mean --num-requests?"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    url: str, arguments: list[str], message: str, capsys
) -> None:
    assert main(["bench", url, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("headway: error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_server_that_is_not_there_is_exit_2(capsys) -> None:
    assert main(["bench", "http://127.0.0.1:9", *FAST]) == 2
    assert "can't be asked for its models: no connection" in capsys.readouterr().err


def started(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headway", "bench", url, *FAST, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interrupted_one_reports_what_there_is(url: str, handler: type[Handler]) -> None:
    handler.hang = threading.Event()
    process = started(url)
    try:
        assert handler.seen.wait(30)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    finally:
        handler.hang.set()
        process.kill()
    assert process.returncode == 130
    printed = json.loads(out)
    assert printed["completed"] == 0
    assert 1 <= printed["num_unfinished"] == printed["num_requests"] <= 8
    assert printed["warnings"][0].startswith("stopped before its end")
    assert "Traceback" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_file_that_cannot_be_written_does_not_cost_the_figures(
    url: str, tmp_path: Path, capsys
) -> None:
    other = tmp_path / "x.csv"
    files = ["--output", "/dev/full", "--csv", str(other)]
    assert main(["bench", url, *FAST, *files]) == 1
    captured = capsys.readouterr()
    assert "8 of 8 requests completed" in captured.out
    assert captured.err == "headway: error: /dev/full: No space left on device\n"
    assert len(other.read_text().splitlines()) == 9
