"""The processes that hold peers, with an engine that is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.peers.cases import Case, Figure
from benchmarks.peers.engines import EngineSpec
from benchmarks.peers.install import PeerError, command
from benchmarks.peers.results import EngineResult, ShapeResult
from benchmarks.peers.shapes import SMOLLM2
from benchmarks.peers.turns import Turns
from benchmarks.peers.worker import Worker

ENGINE = """
import os, sys, json
from benchmarks.peers.protocol import Timing, serve

class Engine:
    def __init__(self, options):
        if "refuse" in options:
            raise ValueError("no such model\\nand more")
        os.write(1, b"a library that talks\\n")
        print("so does this one")
        self.about = {"version": "7"}

    def generate(self, prompts, max_tokens):
        if max_tokens == 99:
            raise RuntimeError("out of memory")
        if max_tokens == 98:
            os._exit(3)
        return Timing(2.0, 1.0, len(prompts) * (max_tokens if max_tokens != 97 else 1))

    def score(self, windows, path):
        open(path, "w").write(json.dumps(windows))

serve(Engine)
"""

CASE = Case(
    name="case",
    streams=2,
    prompt=3,
    output=4,
    figures=(Figure(kind="output", label="mix"),),
)


@contextmanager
def worker(tmp_path: Path, options: str = "{}") -> Iterator[Worker]:
    arguments = [sys.executable, "-c", ENGINE, options]
    started = Worker(arguments, tmp_path / "log", environment={}, timeout_s=60)
    try:
        yield started
    finally:
        started.close()


def test_answers_what_is_asked_and_lets_libraries_talk(tmp_path: Path) -> None:
    with worker(tmp_path) as engine:
        assert engine.about == {"version": "7"}
        assert engine.start_s > 0
        assert engine.generate([[1, 2], [3]], 5).output_tokens == 10
        assert engine.generate([[1]], 2).output_tokens == 2
        engine.score([[1, 2]], tmp_path / "scores")
    assert (tmp_path / "scores").read_text() == "[[1, 2]]"
    log = (tmp_path / "log").read_text()
    assert "a library that talks" in log
    assert "so does this one" in log


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_is_stopped_while_it_is_not_asked(tmp_path: Path) -> None:
    with worker(tmp_path) as engine:
        engine.generate([[1]], 1)
        status = Path(f"/proc/{engine._process.pid}/stat").read_text()
    assert status.rpartition(")")[2].split()[0] == "T"


def test_what_can_not_be_loaded_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(PeerError, match=r"^ValueError: no such model$"),
        worker(tmp_path, '{"refuse": true}'),
    ):
        pass


def test_a_failure_is_an_error_and_the_worker_goes_on(tmp_path: Path) -> None:
    with worker(tmp_path) as engine:
        with pytest.raises(PeerError, match="RuntimeError: out of memory"):
            engine.generate([[1]], 99)
        assert engine.generate([[1]], 1).output_tokens == 1


def test_a_process_that_dies_is_an_error(tmp_path: Path) -> None:
    with worker(tmp_path) as engine:
        with pytest.raises(PeerError, match="ended without an answer"):
            engine.generate([[1]], 98)
        with pytest.raises(PeerError, match=r"is gone|ended"):
            engine.generate([[1]], 1)


def spec(name: str) -> EngineSpec:
    return EngineSpec(
        name=name,
        peer="vllm",
        module="vllm",
        file="hf",
        setting="plain",
        options=lambda _shape, _path: {},
    )


def turns(workers: dict[EngineSpec, Worker], result: ShapeResult) -> Turns:
    for each in workers:
        result.engines[each.name] = EngineResult(
            name=each.name, setting=each.setting, is_headway=False
        )
    return Turns(result, SMOLLM2, workers, lambda: 150.0, lambda _: None)


def test_sides_take_turns_and_another_begins_each_round(tmp_path: Path) -> None:
    result = ShapeResult(name="shape", label="Shape")
    (tmp_path / "b").mkdir()
    with worker(tmp_path) as first, worker(tmp_path / "b") as second:
        rounds = turns({spec("a"): first, spec("b"): second}, result)
        rounds.prime([CASE])
        rounds.round(0, [CASE])
        rounds.round(1, [CASE])
    assert [(m.engine, m.round) for m in result.measurements] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
        ("a", 1),
    ]
    assert all(m.fork_join_ns == 150.0 for m in result.measurements)


@pytest.mark.parametrize(
    ("output", "reason"), [(99, "out of memory"), (98, "ended without"), (97, "2 tokens came")]
)
def test_an_engine_that_fails_drops_out_and_the_others_go_on(
    tmp_path: Path, output: int, reason: str
) -> None:
    bad = Case(name="bad", streams=2, prompt=3, output=output, figures=CASE.figures)
    result = ShapeResult(name="shape", label="Shape")
    with worker(tmp_path) as engine:
        workers = {spec("a"): engine}
        rounds = turns(workers, result)
        rounds.round(0, [CASE, bad, CASE])
        assert not workers
    assert [m.case for m in result.measurements] == ["case"]
    assert reason in str(result.engines["a"].error)


def test_a_command_that_fails_gives_one_line() -> None:
    script = "import sys; sys.exit('noise\\nERROR: no matching distribution\\nmore')"
    with pytest.raises(PeerError, match=r"ERROR: no matching distribution$"):
        command([sys.executable, "-c", script])
    with pytest.raises(PeerError, match="No such file"):
        command(["/does/not/exist"])
