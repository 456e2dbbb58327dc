"""``/v1/chat/completions`` field by field."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loopback import (
    CHAT,
    EOS,
    MODEL,
    Reply,
    Setup,
    by_index,
    chat,
    running,
    say,
    say_ids,
    usage,
)

from headway.generation.stream import Usage
from headway.server.routes.chat import ChatFormat


async def ask(setup: Setup, **fields: Any) -> Reply:
    async with running(setup) as service:
        reply = await service.call(CHAT, chat(**fields))
        await service.until_idle()
        return reply


async def answer(text: str = "Hello", **fields: Any) -> Any:
    reply = await ask(Setup(script=say(text)), **fields)
    assert reply.status == 200, reply.body
    return reply.json


async def test_the_answer_has_the_fields_of_openai() -> None:
    parsed = await answer()
    choice = parsed["choices"][0]
    assert parsed["id"].startswith("chatcmpl-")
    assert parsed["object"] == "chat.completion"
    assert parsed["created"] > 1_700_000_000
    assert parsed["model"] == MODEL
    assert parsed["service_tier"] == "default"
    assert parsed["system_fingerprint"]
    assert choice["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] is None
    assert choice["logprobs"] is None
    # prompt "u:hi\na:", answer "Hello" and the end token
    assert parsed["usage"] == usage(7, 6)
    assert "prompt_token_ids" not in parsed


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_length_is_reported(name: str) -> None:
    fields: dict[str, Any] = {name: 3}
    parsed = await answer(**fields)
    assert parsed["choices"][0]["message"]["content"] == "Hel"
    assert parsed["choices"][0]["finish_reason"] == "length"
    assert parsed["usage"]["completion_tokens"] == 3


async def test_max_completion_tokens_goes_before_max_tokens() -> None:
    parsed = await answer(max_tokens=4, max_completion_tokens=2)
    assert parsed["choices"][0]["message"]["content"] == "He"


@pytest.mark.parametrize("stop", ["l", ["zz", "l"]])
async def test_stop_strings_end_the_answer(stop: Any) -> None:
    choice = (await answer(stop=stop))["choices"][0]
    assert choice["message"]["content"] == "He"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "l")


async def test_a_stop_string_is_a_good_end_for_the_engine_too() -> None:
    async with running(Setup(script=say("Hello"), gated=True)) as service:
        task = asyncio.create_task(service.call(CHAT, chat(stop="e")))
        await service.until(service.executor.is_waiting.is_set)
        service.executor.allow(100)
        await task
        await service.until_idle()
        await service.until(lambda: service.num_ended("finished", "stop") == 1)
        assert len(service.executor.plans) <= 6


async def test_stop_strings_can_be_shown() -> None:
    parsed = await answer(stop="ll", include_stop_str_in_output=True)
    assert parsed["choices"][0]["message"]["content"] == "Hell"


async def test_b31_stop_token_ids_end_the_answer() -> None:
    choice = (await answer(stop_token_ids=[ord("l")]))["choices"][0]
    assert choice["message"]["content"] == "He"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ord("l"))


async def test_ignore_eos_goes_on_to_max_tokens() -> None:
    parsed = await answer("ab", ignore_eos=True, max_tokens=5)
    assert parsed["choices"][0]["message"]["content"] == "ab"
    assert parsed["choices"][0]["finish_reason"] == "length"
    assert parsed["usage"]["completion_tokens"] == 5


async def test_special_tokens_can_be_shown() -> None:
    parsed = await answer("ab", ignore_eos=True, max_tokens=3, skip_special_tokens=False)
    assert parsed["choices"][0]["message"]["content"] == "ab<eos>"


async def test_n_choices_share_the_prompt() -> None:
    reply = await ask(Setup(script=by_index("one", "three", "")), n=3)
    parsed = reply.json
    assert [choice["index"] for choice in parsed["choices"]] == [0, 1, 2]
    contents = [choice["message"]["content"] for choice in parsed["choices"]]
    assert contents == ["one", "three", ""]
    assert parsed["usage"]["prompt_tokens"] == 7
    assert parsed["usage"]["completion_tokens"] == 4 + 6 + 1


async def test_logprobs_have_one_entry_per_token() -> None:
    parsed = await answer("ď!", logprobs=True, top_logprobs=2)
    content = parsed["choices"][0]["logprobs"]["content"]
    assert parsed["choices"][0]["logprobs"]["refusal"] is None
    assert [entry["bytes"] for entry in content] == [[0xC4], [0x8F], [0x21], list(b"<eos>")]
    assert [entry["token"] for entry in content] == ["\ufffd", "\ufffd", "!", "<eos>"]
    assert all(entry["logprob"] == -1.0 for entry in content)
    assert [top["logprob"] for top in content[2]["top_logprobs"]] == [-1.0, -2.0]
    assert content[2]["top_logprobs"][0]["token"] == "!"


async def test_logprobs_without_top_have_empty_lists() -> None:
    parsed = await answer("a", logprobs=True)
    content = parsed["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in content] == [[], []]


async def test_token_ids_are_returned_on_request() -> None:
    parsed = await answer("ab", return_token_ids=True)
    assert parsed["prompt_token_ids"] == list(b"u:hi\na:")
    assert parsed["choices"][0]["token_ids"] == [*b"ab", EOS]


async def test_prompt_logprobs_are_returned_on_request() -> None:
    parsed = await answer("a", prompt_logprobs=1)
    scores = parsed["prompt_logprobs"]
    assert len(scores) == 7
    assert scores[0] is None
    assert scores[1] == {str(ord(":")): {"logprob": -1.0, "decoded_token": ":"}}


async def test_content_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts, "name": "x"}]
    async with running() as service:
        body = {"messages": messages, "return_token_ids": True}
        parsed = (await service.call(CHAT, body)).json
    assert bytes(parsed["prompt_token_ids"]) == b"u:a\nb\na:"
    assert parsed["model"] == MODEL


async def test_developer_messages_are_system_messages() -> None:
    messages = [{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}]
    async with running() as service:
        body = {"messages": messages, "return_token_ids": True}
        parsed = (await service.call(CHAT, body)).json
    assert bytes(parsed["prompt_token_ids"]) == b"s:d\nu:u\na:"


async def test_answers_can_be_sent_back_as_they_came() -> None:
    async with running() as service:
        first = (await service.call(CHAT, chat())).json["choices"][0]["message"]
        sdk_extras: dict[str, Any] = {
            "annotations": [],
            "audio": None,
            "function_call": None,
            "tool_calls": None,
        }
        again = [{"role": "user", "content": "hi"}, {**first, **sdk_extras}]
        reply = await service.call(CHAT, {"model": MODEL, "messages": again})
    assert reply.status == 200


async def test_a_final_message_can_be_continued() -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]
    async with running() as service:
        body = {"messages": messages, "continue_final_message": True, "return_token_ids": True}
        parsed = (await service.call(CHAT, body)).json
        both = await service.call(CHAT, {**body, "add_generation_prompt": True})
    assert bytes(parsed["prompt_token_ids"]) == b"u:q\na:The"
    assert both.status == 400
    assert both.error["param"] == "continue_final_message"


async def test_the_generation_prompt_can_be_left_out() -> None:
    parsed = await answer(add_generation_prompt=False, return_token_ids=True)
    assert bytes(parsed["prompt_token_ids"]) == b"u:hi\n"


async def test_template_variables_can_be_set() -> None:
    setup = Setup(template="{{ messages[0].content }}{{ extra }}")
    reply = await ask(setup, chat_template_kwargs={"extra": "!"}, return_token_ids=True)
    assert bytes(reply.json["prompt_token_ids"]) == b"hi!"
    refused = await ask(setup, chat_template_kwargs={"messages": []})
    assert refused.status == 400
    assert refused.error["param"] == "chat_template_kwargs"


HARMLESS: list[dict[str, Any]] = [
    {"metadata": {}, "prompt_cache_options": {"a": [1]}},
    {"metadata": None, "prompt_cache_options": None},
    {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"},
    {"store": False, "parallel_tool_calls": True, "modalities": ["text"], "verbosity": "medium"},
    {"tool_choice": "auto"},
    {"response_format": {"type": "text"}, "tool_choice": "none", "function_call": "none"},
    {"tools": None, "functions": None, "audio": None, "prediction": None, "logit_bias": None},
    {"service_tier": "auto", "reasoning_effort": "none", "prompt_cache_retention": "24h"},
    {"priority": 0, "use_beam_search": False, "length_penalty": 1.0, "bad_words": []},
    {"seed": 1, "temperature": 0.5, "top_p": 0.5, "top_k": 5, "min_p": 0.1, "min_tokens": 2},
    {"presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1},
    {"logit_bias": {"5": 3, "6": -100}, "stop": None, "n": None, "stream": None},
]


@pytest.mark.parametrize("fields", HARMLESS)
async def test_what_clients_commonly_send_is_accepted(fields: dict[str, Any]) -> None:
    assert (await answer(**fields))["choices"][0]["message"]["content"] == "Hello"


async def test_sampling_fields_reach_the_executor() -> None:
    async with running() as service:
        fields: dict[str, Any] = {
            "seed": 5,
            "temperature": 0.5,
            "top_k": 3,
            "logit_bias": {"7": 1.5},
        }
        await service.call(CHAT, chat(**fields))
        (new,) = service.executor.plans[0].new_sequences
    assert (new.sampling.seed, new.sampling.temperature, new.sampling.top_k) == (5, 0.5, 3)
    assert new.sampling.logit_bias == ((7, 1.5),)


async def test_stream_starts_with_the_role_and_ends_with_done() -> None:
    events = (await ask(Setup(script=say("Hey")), stream=True)).events
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(chunk["choices"][0]["delta"].keys() == {"content"} for chunk in chunks[1:-1])
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
    assert text == "Hey"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in chunk for chunk in chunks)


async def test_stream_headers_keep_proxies_from_buffering() -> None:
    reply = await ask(Setup(), stream=True)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"


STREAM_OPTIONS: list[tuple[Any, bool]] = [
    ({}, False),
    ({"include_usage": False}, False),
    ({"include_usage": None}, False),
    (None, False),
    ({"include_usage": True}, True),
]


@pytest.mark.parametrize(("options", "expected"), STREAM_OPTIONS)
async def test_b35_usage_comes_only_when_asked_for(options: Any, expected: bool) -> None:
    reply = await ask(Setup(script=say("ab")), stream=True, stream_options=options)
    chunks = reply.events[:-1]
    last = chunks[-1]
    if expected:
        assert last["choices"] == []
        assert last["usage"] == usage(7, 3)
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
    else:
        assert last["choices"]
        assert all("usage" not in chunk for chunk in chunks)


async def test_b35_stream_options_need_a_stream() -> None:
    reply = await ask(Setup(), stream_options={"include_usage": True})
    assert reply.status == 400
    assert reply.error["param"] == "stream_options"


async def test_b26_each_choice_of_a_stream_finishes_once() -> None:
    setup = Setup(script=by_index("a", "bbbb", "cc"))
    events = (await ask(setup, stream=True, n=3, stream_options={"include_usage": True})).events
    choices = [choice for event in events[:-2] for choice in event["choices"]]
    for index, text in enumerate(("a", "bbbb", "cc")):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(choice["delta"].get("content", "") for choice in own) == text
        finishes = [choice["finish_reason"] for choice in own]
        assert finishes[-1] == "stop"
        assert finishes[:-1] == [None] * (len(own) - 1)
    assert events[-2]["usage"] == usage(7, 2 + 5 + 3)


async def test_b33_stream_logprobs_equal_those_of_the_whole() -> None:
    fields = {"logprobs": True, "top_logprobs": 3, "stop": "ne", "seed": 1}
    script = say("one, two, ďone")
    whole = (await ask(Setup(script=script), **fields)).json["choices"][0]
    events = (await ask(Setup(script=script), stream=True, **fields)).events[:-1]
    entries = [
        entry
        for event in events
        for entry in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert entries == whole["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["o", "n", "e"]
    assert text == whole["message"]["content"] == "o"


async def test_b33_steps_that_pile_up_are_told_apart() -> None:
    setup = Setup(script=say("abcdef"), gated=True)
    async with running(setup) as service:
        body = chat(stream=True, logprobs=True, top_logprobs=1)
        task = asyncio.create_task(service.call(CHAT, body))
        await service.until(service.executor.is_waiting.is_set)
        service.executor.allow(100)
        events = (await task).events[:-1]
    contents = [event["choices"][0]["logprobs"] for event in events]
    entries = [entry for part in contents if part for entry in part["content"]]
    assert [entry["token"] for entry in entries] == [*"abcdef", "<eos>"]
    assert [entry["top_logprobs"][0]["token"] for entry in entries] == [*"abcdef", "<eos>"]


async def test_b29_a_stop_string_is_never_streamed() -> None:
    ids = [ord("x"), 259, ord("G"), 260, ord("J")]
    events = (await ask(Setup(script=say_ids(ids)), stream=True, stop="DEFGHIJ")).events[:-1]
    texts = [event["choices"][0]["delta"].get("content", "") for event in events]
    assert "".join(texts) == "x"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"][0]["stop_reason"] == "DEFGHIJ"


async def test_b32_streamed_characters_are_whole() -> None:
    text = "ď🦜👩‍👩‍👧"
    events = (await ask(Setup(script=say(text)), stream=True)).events[:-1]
    texts = [event["choices"][0]["delta"].get("content", "") for event in events]
    assert "".join(texts) == text
    assert not any("\ufffd" in part for part in texts)


async def test_stream_returns_token_ids_on_request() -> None:
    events = (await ask(Setup(script=say("ab")), stream=True, return_token_ids=True)).events[:-1]
    assert events[0]["prompt_token_ids"] == list(b"u:hi\na:")
    ids = [each for event in events for each in event["choices"][0].get("token_ids", [])]
    assert ids == [*b"ab", EOS]


async def test_a_stream_has_the_prompts_ids_once() -> None:
    setup = Setup(script=say("ab"))
    events = (await ask(setup, stream=True, return_token_ids=True, n=3)).events[:-1]
    (first,) = [event for event in events if "prompt_token_ids" in event]
    assert first is events[0]
    assert first["choices"][0]["index"] == 0


async def test_an_empty_answer_still_has_role_and_finish() -> None:
    events = (await ask(Setup(script=say("")), stream=True)).events
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {}]


async def test_a_bug_in_mid_stream_ends_it_with_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: ChatFormat, usage: Usage) -> list[bytes]:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(ChatFormat, "closing", broken)
    *chunks, error, done = (await ask(Setup(script=say("ab")), stream=True)).events
    assert chunks
    assert error["error"]["code"] == "internal_error"
    assert "secret" not in error["error"]["message"]
    assert done == "[DONE]"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("value", ["x", {"a": 1}, 5])
async def test_annotations_that_are_no_array_are_refused(value: Any) -> None:
    messages = [{"role": "user", "content": "u", "annotations": value}]
    async with running() as service:
        reply = await service.call(CHAT, {"messages": messages})
    assert reply.status == 400
    assert reply.error["param"] == "messages[0].annotations"
    assert reply.error["code"] == "invalid_type"
