"""Classes in the Python API: terms say which one, and caps of queues are for servers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import LLM, GenerationParams, RequestError, Terms

CLASSES = """
[scheduler]
protect = "throughput"
max_waiting_time_ms = 0

[classes.chat]
max_queue_requests = 0
max_output_tokens = 4

[classes.batch]
max_queue_requests = 1
max_queue_tokens = 1
"""
LONG = GenerationParams(max_tokens=9, ignore_eos=True, seed=1)


@pytest.fixture
def llm(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    path = tmp_path / "classes.toml"
    path.write_text(CLASSES)
    monkeypatch.setenv("HEADWAY_CONFIG", str(path))
    with LLM(model, executor="simulated", max_num_seqs=2, num_blocks=64) as loaded:
        yield loaded


def counted(llm: LLM, class_name: str) -> bool:
    page = llm.assembly.metrics.render().decode()
    return f'headway_requests_total{{class="{class_name}"' in page


def test_the_first_class_is_the_default(llm: LLM) -> None:
    (output,) = llm.generate("a", LONG)
    assert (output.num_output_tokens, output.choices[0].finish_reason) == (4, "length")
    assert counted(llm, "chat")


def test_terms_choose_the_class_of_every_call(llm: LLM) -> None:
    terms = Terms(class_name="batch", priority=3, tenant="t", cache_salt="s")
    assert llm.generate("a", LONG, terms=terms)[0].num_output_tokens == 9
    assert llm.chat("a", LONG, terms=terms).num_output_tokens == 9
    with llm.stream("a", LONG, terms=terms) as pieces:
        list(pieces)
    with llm.stream_text("a", LONG, terms=terms) as pieces:
        list(pieces)
    assert counted(llm, "batch")
    assert not counted(llm, "chat")


@pytest.mark.parametrize("class_name", ["chat", "batch"])
def test_caps_of_queues_do_not_count(llm: LLM, class_name: str) -> None:
    prompts = [f"prompt {number}" for number in range(30)]
    outputs = llm.generate(prompts, LONG, terms=Terms(class_name=class_name))
    assert len(outputs) == 30


def test_an_unknown_class_is_refused_by_name(llm: LLM) -> None:
    with pytest.raises(RequestError, match="no class 'gold'"):
        llm.chat("a", LONG, terms=Terms(class_name="gold"))
    with pytest.raises(RequestError) as caught:
        llm.chat("a", LONG, terms=Terms(priority=2**40))
    assert caught.value.param == "priority"


def test_contradictions_of_the_goal_are_logged(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "classes.toml"
    path.write_text(CLASSES)
    monkeypatch.setenv("HEADWAY_CONFIG", str(path))
    with caplog.at_level(logging.WARNING), LLM(model, executor="simulated", num_blocks=64):
        pass
    (message,) = [r.getMessage() for r in caplog.records if "protect" in r.getMessage()]
    assert "scheduler.max_waiting_time_ms = 0.0" in message


def test_a_prompt_seen_before_is_cached(llm: LLM) -> None:
    text = "x" * 64
    terms = Terms(class_name="batch")
    first, second = (llm.generate(text, LONG, terms=terms)[0] for _ in range(2))
    assert first == second
    assert (first.num_cached_tokens, second.num_cached_tokens >= 48) == (0, True)
