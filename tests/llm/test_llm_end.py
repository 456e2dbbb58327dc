"""The end of a model in this process: closed, dropped, broken, or left at the program's exit."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from small_model import AT_ONCE, CONTEXT, say, scripted

from headway import LLM, EngineStoppedError, GenerationParams, RequestError
from headway.testing.scripted import ScriptedExecutor

ENDLESS = GenerationParams(max_tokens=CONTEXT - 20, ignore_eos=True)
TIMEOUT_S = 60


def test_closing_twice_is_fine_and_every_call_says_that_it_is_closed(llm: LLM) -> None:
    closed, still_open = llm.stream("hi", ENDLESS), llm.stream("hi", ENDLESS)
    closed.close()
    llm.close()
    llm.close()
    closed.close()
    assert list(closed) == []
    with pytest.raises(EngineStoppedError, match="closed"):
        next(still_open)
    for ask in (llm.generate, llm.chat, llm.stream, llm.stream_text):
        with pytest.raises(EngineStoppedError, match="closed"):
            ask("hi")


def test_whoever_waits_in_another_thread_is_told_at_once(model: Path) -> None:
    """Also while a step is computed that takes for ever."""
    executor = ScriptedExecutor(say("x"), gated=True)
    llm = LLM.from_assembly(scripted(model, executor))
    stream = llm.stream("hi", ENDLESS)
    with ThreadPoolExecutor() as pool:
        waiting: list[Future[Any]] = [
            pool.submit(llm.generate, ["a"] * 300),
            pool.submit(llm.chat, "a"),
            pool.submit(next, stream),
        ]
        try:
            assert executor.is_waiting.wait(TIMEOUT_S)
            closing = pool.submit(llm.close)
            for call in waiting:
                with pytest.raises(EngineStoppedError, match="closed"):
                    call.result(TIMEOUT_S)
            assert not closing.done()
        finally:
            executor.allow(1_000_000)
        closing.result(TIMEOUT_S)


def test_many_close_at_once_while_many_ask(model: Path) -> None:
    for _ in range(20):
        llm = LLM.from_assembly(scripted(model, ScriptedExecutor(say("x" * CONTEXT))))
        start = threading.Barrier(8)

        def ask(llm: LLM = llm, start: threading.Barrier = start) -> None:
            start.wait(TIMEOUT_S)
            with suppress(EngineStoppedError):
                while llm.generate(["a", "b"], GenerationParams(max_tokens=3)):
                    continue

        def close(llm: LLM = llm, start: threading.Barrier = start) -> None:
            start.wait(TIMEOUT_S)
            llm.close()

        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(ask) for _ in range(4)] + [pool.submit(close) for _ in range(4)]
            for call in calls:
                call.result(TIMEOUT_S)
        assert llm.assembly.engine.status.state == "stopped"


def test_an_engine_that_does_not_stop_well_leaves_no_thread(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assembly = scripted(model, ScriptedExecutor(say("x")))
    stop = assembly.engine.stop

    async def stop_badly() -> int:
        await stop()
        raise OSError("the journal's disk is full")

    monkeypatch.setattr(assembly.engine, "stop", stop_badly)
    llm = LLM.from_assembly(assembly)
    with pytest.raises(OSError, match="disk is full"):
        llm.close()
    assert not llm._thread._thread.is_alive()
    llm.close()
    assert "did not end well" in caplog.text


def test_an_engine_that_does_not_start_is_no_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly = scripted(model, ScriptedExecutor(say("x")))

    def start() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(assembly.engine, "start", start)
    with pytest.raises(RuntimeError, match="can't start"):
        LLM.from_assembly(assembly)


def test_one_that_is_dropped_ends_by_itself(model: Path) -> None:
    llm = LLM(model, executor="simulated", num_blocks=64, **AT_ONCE)
    stream = llm.stream("hi", ENDLESS)
    thread, gone = llm._thread._thread, weakref.ref(llm)
    del llm, stream
    gc.collect()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert gone() is None


def test_leaving_the_block_by_an_error_closes(model: Path) -> None:
    executor = ScriptedExecutor(say("x" * CONTEXT))
    llm = LLM.from_assembly(scripted(model, executor))
    with pytest.raises(RequestError), llm:
        llm.chat("x" * CONTEXT)
    with pytest.raises(EngineStoppedError):
        llm.chat("hi")


PROGRAM = """
import sys
from headway import LLM, GenerationParams
llm = LLM(sys.argv[1], executor=sys.argv[2], num_blocks=64, num_threads=1)
stream = llm.stream("hi", GenerationParams(max_tokens=400, ignore_eos=True))
print(bool(next(stream)))
"""


@pytest.mark.parametrize("executor", ["cpu", "torch"])
def test_a_program_may_end_with_a_stream_open(model: Path, executor: str) -> None:
    """Native code must not be left in the middle of a step, which would abort the program."""
    if executor == "torch":
        pytest.importorskip("torch")
    else:
        pytest.importorskip("headway.kernels._native", reason="its warning is not looked for")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model), executor],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S * 2,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
