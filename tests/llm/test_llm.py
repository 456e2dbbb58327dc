"""The Python API through its own door: answers, streams, refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from small_model import AT_ONCE, CONTEXT, EOS, say, scripted_llm

from headway import LLM, GenerationError, GenerationParams, RequestError, UsageError
from headway.core.plan import NewSequence
from headway.llm import AnswerStream
from headway.testing.scripted import ScriptedExecutor

SHORT = GenerationParams(max_tokens=6, seed=3)


def echo(new: NewSequence, position: int) -> int:
    """Script: the prompt again, then the end."""
    return (*new.prompt_token_ids, EOS)[position]


# -------------------------------------------------------------------- answers


def test_each_prompt_gets_its_own_answer_in_its_place(model: Path) -> None:
    texts = [f"prompt {number}" for number in range(40)]
    with scripted_llm(model, ScriptedExecutor(echo)) as llm:
        outputs = llm.generate(texts)
    assert [output.text for output in outputs] == texts
    assert [output.prompt_token_ids for output in outputs] == [tuple(t.encode()) for t in texts]
    assert {output.choices[0].finish_reason for output in outputs} == {"stop"}
    assert [output.num_output_tokens for output in outputs] == [len(t) + 1 for t in texts]


def test_one_text_is_one_prompt_and_nothing_is_none(llm: LLM) -> None:
    (output,) = llm.generate("abc", SHORT)
    assert output.prompt_token_ids == tuple(b"abc")
    assert (output.num_output_tokens, output.choices[0].finish_reason) == (6, "length")
    assert llm.generate([], SHORT) == []


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([97, 98], [(97, 98)]),
        ((97, 98), [(97, 98)]),
        ([[97, 98], (99,)], [(97, 98), (99,)]),
        (["ab", [99]], [(97, 98), (99,)]),
        (iter(["a", "b"]), [(97,), (98,)]),
    ],
)
def test_prompts_may_be_token_ids(llm: LLM, prompts: Any, expected: list[tuple[int, ...]]) -> None:
    outputs = llm.generate(prompts, SHORT)
    assert [output.prompt_token_ids for output in outputs] == expected


def test_any_number_of_prompts_passes_whatever_a_servers_queue_may_hold(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SCHEDULER_MAX_QUEUE_REQUESTS", "1")
    monkeypatch.setenv("HEADWAY_SCHEDULER_MAX_QUEUE_TOKENS", "1")
    with LLM(model, executor="simulated", max_num_seqs=4, num_blocks=256, **AT_ONCE) as llm:
        outputs = llm.generate(["some prompt"] * 3000, GenerationParams(max_tokens=1, n=2))
    assert len(outputs) == 3000


def test_only_a_window_of_many_prompts_is_submitted(model: Path) -> None:
    num_live = []

    def script(new: NewSequence, position: int) -> int:
        num_live.append(llm.assembly.engine.statistics().num_live)
        return EOS

    with scripted_llm(model, ScriptedExecutor(script), **{"scheduler.max_num_seqs": 4}) as llm:
        assert len(llm.generate(["p"] * 200)) == 200
    assert max(num_live) <= 8


def test_a_string_is_the_users_message(model: Path) -> None:
    with scripted_llm(model, ScriptedExecutor(echo)) as llm:
        assert llm.chat("hi").text == "u:hi\na:"
        messages = [
            {"role": "system", "content": "S"},
            {"role": "user", "content": [{"type": "text", "text": "T"}]},
        ]
        assert llm.chat(messages).text == "s:S\nu:T\na:"


def test_the_pieces_of_a_stream_add_up_to_the_text(llm: LLM) -> None:
    params = GenerationParams(max_tokens=50, seed=1, ignore_eos=True)
    pieces = list(llm.stream("hi", params))
    assert all(pieces)
    assert "".join(pieces) == llm.chat("hi", params).text
    pieces = list(llm.stream_text([97, 98], params))
    assert "".join(pieces) == llm.generate("ab", params)[0].text


def test_one_stop_string_is_one_stop_string(model: Path) -> None:
    with scripted_llm(model, ScriptedExecutor(say("a b c abc d"))) as llm:
        (output,) = llm.generate("x", GenerationParams(stop="abc"))
        assert output.text == "a b c "
        assert output.choices[0].stop_reason == "abc"
        (output,) = llm.generate("x", GenerationParams(stop=["abc", "b"]))
        assert output.text == "a "


def test_sampled_choices_are_the_same_for_the_same_seed(model: Path) -> None:
    params = GenerationParams(max_tokens=12, n=3, seed=11, ignore_eos=True)
    with LLM(model, num_blocks=64) as llm:
        (one,), (other,) = llm.generate("ab", params), llm.generate("ab", params)
        (different,) = llm.generate("ab", GenerationParams(max_tokens=12, n=3, ignore_eos=True))
    assert one == other
    assert len({choice.token_ids for choice in one.choices}) == 3
    assert one.choices != different.choices


def test_log_probabilities_of_the_prompt(model: Path) -> None:
    params = GenerationParams(max_tokens=0, prompt_logprobs=2)
    with LLM(model, num_blocks=64) as llm:
        (output,) = llm.generate("abc", params)
        assert llm.generate("abc", GenerationParams(max_tokens=1))[0].prompt_logprobs == ()
    first, *others = output.prompt_logprobs
    assert first is None
    found = [position.token.token_id for position in others if position is not None]
    assert found == list(output.prompt_token_ids[1:])
    assert all(position is not None and len(position.top) == 2 for position in others)


def test_log_probabilities(model: Path) -> None:
    params = GenerationParams(max_tokens=4, temperature=0, logprobs=2, ignore_eos=True)
    with LLM(model, num_blocks=64) as llm:
        choice = llm.generate("ab", params)[0].choices[0]
    assert [position.token.token_id for position in choice.logprobs] == list(choice.token_ids)
    for position in choice.logprobs:
        best, second = position.top
        assert best == position.token, "greedy takes the likeliest"
        assert second.logprob <= best.logprob <= 0


# -------------------------------------------------------------------- threads and loops


def test_several_threads_at_once(model: Path) -> None:
    with scripted_llm(model, ScriptedExecutor(echo)) as llm, ThreadPoolExecutor(8) as pool:
        texts = [f"thread {number}" for number in range(64)]
        answers = pool.map(lambda text: llm.generate([text] * 3), texts)
        assert [[o.text for o in outputs] for outputs in answers] == [[t] * 3 for t in texts]


async def test_inside_a_running_event_loop_from_a_worker_thread(llm: LLM) -> None:
    first, second = await asyncio.gather(
        asyncio.to_thread(llm.generate, "ab", SHORT), asyncio.to_thread(llm.chat, "hi", SHORT)
    )
    assert first[0].num_output_tokens == second.num_output_tokens == 6


async def test_inside_a_running_event_loop_without_one(llm: LLM) -> None:
    assert llm.chat("hi", SHORT).num_output_tokens == 6


# -------------------------------------------------------------------- streams left early

ENDLESS = GenerationParams(max_tokens=CONTEXT - 20, ignore_eos=True)


def until(condition: Callable[[], object]) -> None:
    """Wait for what other threads bring about."""
    pause = threading.Event()
    for _ in range(10_000):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError("it never came so far")


@contextmanager
def held_llm(model: Path, num_steps: int) -> Iterator[LLM]:
    """A model that stops after so many steps; then all that was asked for must be cancelled."""
    executor = ScriptedExecutor(say("x" * CONTEXT), gated=True)
    with scripted_llm(model, executor) as llm:
        executor.allow(num_steps)
        yield llm
        engine = llm.assembly.engine
        until(lambda: engine._inbox or engine.statistics().num_live == 0)
        executor.allow(1000)
        until(lambda: engine.statistics().num_live == 0)
    assert len(executor.plans) <= num_steps + 1


def test_a_stream_that_nobody_reads_is_cancelled_when_dropped(model: Path) -> None:
    with held_llm(model, num_steps=1) as llm:
        stream = llm.stream("hi", ENDLESS)
        until(lambda: llm.assembly.engine.statistics().num_live == 1)
        del stream


def test_a_stream_that_is_closed_is_cancelled(model: Path) -> None:
    with held_llm(model, num_steps=2) as llm:
        stream = llm.stream("hi", ENDLESS)
        assert iter(stream) is stream
        assert set(next(stream)) == {"x"}
        stream.close()
        assert list(stream) == []
        stream.close()


def test_a_stream_left_by_its_block_is_cancelled(model: Path) -> None:
    with held_llm(model, num_steps=2) as llm, llm.stream_text("hi", ENDLESS) as pieces:
        for _ in pieces:
            break


def test_a_stream_outlives_the_name_of_its_model(model: Path) -> None:
    def open_stream() -> AnswerStream:
        llm = LLM(model, executor="simulated", num_blocks=64, **AT_ONCE)
        return llm.stream("hi", GenerationParams(max_tokens=30, ignore_eos=True))

    assert "".join(open_stream())


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("prompts", "param"),
    [
        (b"bytes", "prompts"),
        ({"a": 1}, "prompts"),
        (7, "prompts"),
        (None, "prompts"),
        (["a", None], "prompts[1]"),
        (["a", b"b"], "prompts[1]"),
        (["a", 1], "prompts[1]"),
        ([True], "prompts[0]"),
        ([[1, "2"]], "prompts[0]"),
        ([[1, 2.0]], "prompts[0]"),
        ([[True]], "prompts[0]"),
        ([["a"]], "prompts[0]"),
        (["a", []], "prompts[1]"),
        (["a", ""], "prompts[1]"),
        (["a", "x" * CONTEXT], "prompts[1]"),
        ([EOS + 1], "prompts"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(llm: LLM, prompts: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate(prompts, SHORT)
    assert caught.value.param == param
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "messages",
    [
        {"role": "user", "content": "hi"},
        7,
        None,
        [],
        ["hi"],
        [{"content": "hi"}],
        [{"role": 1, "content": "hi"}],
        [{"role": "user", "content": 7}],
        [{"role": "user", "content": ["hi"]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": None}]}],
    ],
)
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    for ask in (llm.chat, llm.stream):
        with pytest.raises(RequestError) as caught:
            ask(messages, SHORT)
        assert caught.value.param == "messages"


def test_wrong_parameters_are_refused_and_nothing_hangs(llm: LLM) -> None:
    wrong: Any
    for wrong in ({"max_tokens": 3}, 3, GenerationParams):
        for ask in (llm.generate, llm.chat, llm.stream, llm.stream_text):
            with pytest.raises(RequestError) as caught:
                ask("hi", wrong)
            assert caught.value.param == "params"
    with pytest.raises(RequestError, match="max_tokens"):
        llm.chat("hi", GenerationParams(max_tokens=2.5))  # type: ignore[arg-type]
    for ask in (llm.stream, llm.stream_text):
        with pytest.raises(RequestError, match="one answer"):
            ask("hi", GenerationParams(n=2))


def test_a_refused_prompt_cancels_the_others(model: Path) -> None:
    with scripted_llm(model, ScriptedExecutor(say("x" * CONTEXT))) as llm:
        with pytest.raises(RequestError, match="vocabulary"):
            llm.generate(["a", "b", [EOS + 1]], ENDLESS)
        until(lambda: llm.assembly.engine.statistics().num_live == 0)


def test_a_bad_end_is_a_generation_error_and_the_next_call_works(model: Path) -> None:
    executor = ScriptedExecutor(say("fine"))
    with scripted_llm(model, executor) as llm:
        executor.fail_next_step = RuntimeError("the device is gone")
        with pytest.raises(GenerationError, match="the device is gone") as caught:
            llm.generate("a")
        assert (caught.value.code, caught.value.retry) == ("engine_error", False)
        assert llm.generate("a")[0].text == "fine"


def test_a_deadline_is_a_generation_error(model: Path) -> None:
    slow = {"executor": "simulated", "num_blocks": 64, "step_base_ms": 20}
    with LLM(model, request_timeout_s=0.01, **slow) as llm, pytest.raises(GenerationError) as e:
        llm.generate("a", GenerationParams(max_tokens=50, ignore_eos=True))
    assert e.value.code == "request_timeout"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_num_sequences": 3}, "did you mean max_num_seqs"),
        ({"port": 80}, "unknown setting port"),
        ({"max_num_seqs": "many"}, "max_num_seqs"),
        ({"max_queue_requests": 5}, "callers wait instead"),
        ({"model": "/nonexistent/model"}, "/nonexistent/model"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        LLM(**settings)
    assert "\n" not in str(caught.value)
