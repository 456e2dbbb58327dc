"""``/v1/completions`` field by field."""

from __future__ import annotations

from typing import Any

import pytest
from loopback import (
    BOS,
    COMPLETIONS,
    END,
    EOS,
    MODEL,
    Reply,
    Setup,
    by_prompt,
    completion,
    running,
    say,
    usage,
)


async def ask(setup: Setup, prompt: Any = "hi", **fields: Any) -> Reply:
    async with running(setup) as service:
        reply = await service.call(COMPLETIONS, completion(prompt, **fields))
        await service.until_idle()
        return reply


async def answer(text: str = "Hello", prompt: Any = "hi", **fields: Any) -> Any:
    reply = await ask(Setup(script=say(text)), prompt, **fields)
    assert reply.status == 200, reply.body
    return reply.json


async def test_the_answer_has_the_fields_of_openai() -> None:
    parsed = await answer()
    assert parsed["id"].startswith("cmpl-")
    assert parsed["object"] == "text_completion"
    assert parsed["model"] == MODEL
    assert parsed["choices"] == [
        {
            "index": 0,
            "text": "Hello",
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert parsed["usage"] == usage(2, 6)


async def test_sixteen_tokens_are_the_default() -> None:
    parsed = await answer("x" * 40)
    assert parsed["choices"][0]["text"] == "x" * 16
    assert parsed["choices"][0]["finish_reason"] == "length"


PROMPTS: list[tuple[Any, list[str]]] = [
    ("ab", ["ab"]),
    (["ab"], ["ab"]),
    (["ab", "cd", "e"], ["ab", "cd", "e"]),
    (list(b"ab"), ["ab"]),
    ([list(b"ab"), list(b"cde")], ["ab", "cde"]),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("prompt", "texts"), PROMPTS)
async def test_every_form_of_prompt(prompt: Any, texts: list[str], stream: bool) -> None:
    setup = Setup(script=by_prompt({"a": "A", "c": "C", "e": "E"}))
    reply = await ask(setup, prompt, echo=True, n=2, stream=stream)
    shown = {"ab": "abA", "cd": "cdC", "cde": "cdeC", "e": "eE"}
    expected = {i: shown[text] for i, text in enumerate(t for t in texts for _ in range(2))}
    assert _texts(reply, stream) == expected


def _texts(reply: Reply, stream: bool) -> dict[int, str]:
    bodies = reply.events[:-1] if stream else [reply.json]
    texts: dict[int, str] = {}
    for choice in (choice for body in bodies for choice in body["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return dict(sorted(texts.items()))


async def test_usage_of_several_prompts_is_the_sum() -> None:
    fields = {"stream": True, "stream_options": {"include_usage": True}, "n": 2}
    reply = await ask(Setup(script=say("xy")), ["a", "bcd"], **fields)
    assert reply.events[-2]["usage"] == usage(4, 12)


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_shows_the_text_of_token_ids(stream: bool) -> None:
    reply = await ask(Setup(script=say("!")), [*b"hi", EOS], echo=True, stream=stream)
    assert _texts(reply, stream) == {0: "hi!"}


async def test_logprobs_are_parallel_lists() -> None:
    logprobs = (await answer("aď", "xyz", logprobs=2))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xc4", "bytes:\\x8f", "<eos>"]
    assert logprobs["token_logprobs"] == [-1.0] * 4
    assert logprobs["text_offset"] == [3, 4, 4, 5]
    assert logprobs["top_logprobs"][0] == {"a": -1.0, "b": -2.0}


async def test_logprobs_zero_reports_the_chosen_token_only() -> None:
    logprobs = (await answer("a", logprobs=0))["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"a": -1.0}, {"<eos>": -1.0}]


async def test_echo_puts_the_prompts_logprobs_in_front() -> None:
    choice = (await answer("X", "ab", echo=True, logprobs=1))["choices"][0]
    assert choice["text"] == "abX"
    assert choice["logprobs"]["tokens"] == ["a", "b", "X", "<eos>"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -1.0, -1.0]
    assert choice["logprobs"]["top_logprobs"][:2] == [None, {"b": -1.0}]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]


@pytest.mark.parametrize("skips", [True, False])
async def test_offsets_of_an_echo_fit_its_text_around_special_tokens(skips: bool) -> None:
    ids = [BOS, *"aď".encode(), END, *"🦜z".encode()]
    fields = {"echo": True, "logprobs": 0, "max_tokens": 2, "skip_special_tokens": skips}
    reply = await ask(Setup(script=say("XY")), ids, **fields)
    (choice,) = reply.json["choices"]
    text, offsets = choice["text"], choice["logprobs"]["text_offset"]
    assert text == ("aď🦜zXY" if skips else "<bos>aď<end>🦜zXY")
    shown = [text.index(char) for char in "aďď🦜🦜🦜🦜zXY"]
    first, middle = (0, text.index("🦜")) if skips else (0, text.index("<end>"))
    assert offsets == [first, *shown[:3], middle, *shown[3:]]


async def test_offsets_of_an_echoed_text_count_the_special_tokens_that_it_spells() -> None:
    fields = {"echo": True, "logprobs": 0, "max_tokens": 1}
    (choice,) = (await ask(Setup(script=say("X")), "a<end>b", **fields)).json["choices"]
    assert choice["text"] == "a<end>bX"
    assert choice["logprobs"]["text_offset"] == [0, 1, 6, 7]


@pytest.mark.parametrize("stream", [False, True])
async def test_b21_scoring_a_prompt_alone(stream: bool) -> None:
    prompt = "Your answer: Yes"
    reply = await ask(Setup(), prompt, echo=True, logprobs=1, max_tokens=0, stream=stream)
    (choice,) = (reply.events[0] if stream else reply.json)["choices"]
    assert choice["text"] == prompt
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"]["tokens"] == list(prompt)
    assert choice["logprobs"]["token_logprobs"] == [None] + [-1.0] * (len(prompt) - 1)
    if not stream:
        assert reply.json["usage"]["completion_tokens"] == 0


async def test_b21_no_tokens_without_echo_is_refused() -> None:
    reply = await ask(Setup(), max_tokens=0)
    assert reply.status == 400
    assert reply.error["param"] == "max_tokens"


async def test_stream_chunks_join_to_the_whole() -> None:
    fields = {"logprobs": 1, "echo": True, "n": 2, "max_tokens": 8}
    whole = await answer("Hello", **fields)
    reply = await ask(Setup(script=say("Hello")), stream=True, **fields)
    chunks = reply.events[:-1]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    for expected in whole["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == expected["index"]]
        assert "".join(choice["text"] for choice in own) == expected["text"]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [item for choice in own for item in choice["logprobs"][name]]
            assert joined == expected["logprobs"][name]
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["stop"]


async def test_a_stream_never_begins_with_an_empty_chunk() -> None:
    chunks = (await ask(Setup(script=say("🦜a")), stream=True)).events[:-1]
    texts = [chunk["choices"][0]["text"] for chunk in chunks]
    assert all(texts[:-1])
    assert "".join(texts) == "🦜a"


async def test_token_ids_are_returned_on_request() -> None:
    choices = (await answer("a", ["xy", "z"], return_token_ids=True))["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [list(b"xy"), list(b"z")]
    assert [choice["token_ids"] for choice in choices] == [[ord("a"), EOS]] * 2


async def test_prompt_logprobs_are_returned_on_request() -> None:
    (choice,) = (await answer("a", "xy", prompt_logprobs=0))["choices"]
    expected = [None, {str(ord("y")): {"logprob": -1.0, "decoded_token": "y"}}]
    assert choice["prompt_logprobs"] == expected
    assert choice["logprobs"] is None


@pytest.mark.parametrize("fields", [{"best_of": 1}, {"best_of": 2, "n": 2}, {"suffix": None}])
@pytest.mark.parametrize("stream", [False, True])
async def test_b28_a_best_of_that_asks_for_nothing_is_accepted(
    fields: dict[str, Any], stream: bool
) -> None:
    assert (await ask(Setup(), stream=stream, **fields)).status == 200


BAD_BEST_OF = [{"best_of": 2}, {"best_of": 1, "n": 2}, {"best_of": 2, "stream": True}]


@pytest.mark.parametrize("fields", BAD_BEST_OF)
async def test_b28_any_other_best_of_is_refused(fields: dict[str, Any]) -> None:
    reply = await ask(Setup(), **fields)
    assert reply.status == 400
    assert reply.error["param"] == "best_of"


async def test_a_failed_prompt_takes_the_others_along() -> None:
    def script(new: Any, position: int) -> int:
        if b"bad" in bytes(new.prompt_token_ids):
            raise RuntimeError("a secret detail of /some/path")
        return ord("x")

    async with running(Setup(script=script)) as service:
        body = completion(["good", "bad"], max_tokens=400)
        reply = await service.call(COMPLETIONS, body)
        await service.until_idle()
        alone = await service.call(COMPLETIONS, completion("good", max_tokens=3))
    assert reply.status == 500
    assert reply.error["code"] == "engine_error"
    assert "secret" not in reply.error["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert alone.json["choices"][0]["text"] == "xxx"


async def test_a_prompt_that_is_too_long_takes_the_others_along() -> None:
    async with running() as service:
        reply = await service.call(COMPLETIONS, completion(["a", "b" * 600]))
        await service.until_idle()
    assert reply.status == 400
    assert reply.error["code"] == "context_length_exceeded"


async def test_there_may_be_more_prompts_than_sequences_of_one() -> None:
    async with running() as service:
        reply = await service.call(COMPLETIONS, completion(["a"] * 300, max_tokens=1))
    assert reply.status == 200
    assert [choice["index"] for choice in reply.json["choices"]] == list(range(300))
