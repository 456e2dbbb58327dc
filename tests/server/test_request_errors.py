"""Bad requests: always 4xx, in the envelope, small, and naming the field at fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loopback import (
    CHAT,
    COMPLETIONS,
    CONTEXT,
    MODEL,
    VOCAB_SIZE,
    Reply,
    Setup,
    call,
    chat,
    completion,
    running,
)

from headway.config.settings import ServerSettings


async def refuse(path: str, body: Any, setup: Setup | None = None, **options: Any) -> Reply:
    """Send a bad request; the engine must not have seen it, and must go on."""
    async with running(setup) as service:
        reply = await service.call(path, body, **options)
        assert not service.executor.plans
        assert service.scheduler.statistics().num_live == 0
        good = await service.call(COMPLETIONS, completion())
        assert good.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert 400 <= reply.status < 500
    assert reply.error["type"] == "invalid_request_error"
    return reply


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [0, -1, 1.5, "2", 10**6, True, []])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_b25_a_bad_n_is_json_also_for_streams(path: str, n: Any, stream: bool) -> None:
    body = chat(n=n, stream=stream) if path == CHAT else completion(n=n, stream=stream)
    reply = await refuse(path, body)
    assert reply.status == 400
    assert reply.error["param"] == "n"


EMPTY_PROMPTS: list[tuple[str, dict[str, Any], str]] = [
    (COMPLETIONS, completion(""), "prompt"),
    (COMPLETIONS, completion([""]), "prompt"),
    (COMPLETIONS, completion([]), "prompt"),
    (COMPLETIONS, completion([[]]), "prompt"),
    (CHAT, {"model": MODEL, "messages": []}, "messages"),
    (CHAT, chat(""), "messages"),
]


@pytest.mark.parametrize(("path", "body", "param"), EMPTY_PROMPTS)
async def test_b23_an_empty_prompt_is_refused(path: str, body: Any, param: str) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    reply = await refuse(path, body, Setup(template=template))
    assert reply.status == 400
    assert reply.error["param"] == param


@pytest.mark.parametrize("min_tokens", [0, 1])
@pytest.mark.parametrize("bad", [VOCAB_SIZE, -1, 2**40, 2**70])
async def test_b31_token_ids_outside_the_vocabulary(bad: int, min_tokens: int) -> None:
    for field in ({"stop_token_ids": [bad]}, {"logit_bias": {str(bad): 1.0}}):
        reply = await refuse(CHAT, chat(min_tokens=min_tokens, **field))
        assert reply.status == 400
        assert reply.error["param"] == next(iter(field))
        if bad < 2**64:
            assert str(bad) in reply.error["message"]
    reply = await refuse(COMPLETIONS, completion([1, bad]))
    assert reply.error["param"] == "prompt"


BAD_JSON = [
    b'{"model": "tiny", x}',
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"7",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b'{"model": "\xff"}',
    b'{"model": "\\ud800"}',
    b'{"messages": ' + b"[" * 10_000,
    b'{"metadata": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    b'{"messages": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    b'{"model": "tiny"} trailing',
    b"{" * 100_000,
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", BAD_JSON)
async def test_b39_what_is_not_a_json_object_is_refused(path: str, body: bytes) -> None:
    assert (await refuse(path, body)).status == 400


async def test_b39_the_last_of_duplicate_keys_counts() -> None:
    async with running() as service:
        reply = await service.call(COMPLETIONS, b'{"prompt": "a", "prompt": "bc"}')
    assert reply.json["usage"]["prompt_tokens"] == 2


CONTENT_TYPES = ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"]
CONTENT_TYPES += ["application/json; charset=latin-1", "\xff", "multipart/form-data; boundary=x"]


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
async def test_b39_another_content_type_is_415(content_type: str) -> None:
    reply = await refuse(CHAT, chat(), headers={"content-type": content_type})
    assert reply.status == 415
    assert reply.error["code"] == "unsupported_media_type"


JSON_TYPES = ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"]
JSON_TYPES += ['application/json;charset="UTF-8"']


@pytest.mark.parametrize("content_type", JSON_TYPES)
async def test_json_content_types_are_accepted(content_type: str) -> None:
    async with running() as service:
        reply = await service.call(CHAT, chat(), headers={"content-type": content_type})
    assert reply.status == 200


NUMBERS = [
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
]
NOT_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"0.7"', "true", "[]", "{}"]


@pytest.mark.parametrize("literal", NOT_NUMBERS)
@pytest.mark.parametrize("name", [*NUMBERS, "logit_bias"])
async def test_b40_no_odd_number_gets_through(name: str, literal: str) -> None:
    value = f'{{"5": {literal}}}' if name == "logit_bias" else literal
    body = f'{{"model": "tiny", "prompt": "a", "{name}": {value}}}'.encode()
    reply = await refuse(COMPLETIONS, body)
    assert reply.status == 400
    if literal not in ("NaN", "Infinity", "-Infinity"):  # those are not JSON at all
        assert reply.error["param"].startswith(name)


RANGES: list[tuple[str, Any]] = [
    ("temperature", -0.1),
    ("temperature", 2.5),
    ("top_p", 0),
    ("top_p", 1.5),
    ("min_p", 2),
    ("top_k", -2),
    ("presence_penalty", 3),
    ("frequency_penalty", -3),
    ("repetition_penalty", 0),
    ("max_tokens", -1),
    ("max_tokens", 0),
    ("max_tokens", 1.5),
    ("max_tokens", "7"),
    ("min_tokens", -1),
    ("seed", 2**64),
    ("seed", 1.5),
    ("stop", ["a", "b", "c", "d", "e"]),
    ("stop", ""),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", {}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"five": 1}),
    ("logit_bias", [1]),
    ("stream", "yes"),
    ("stream", 1),
    ("user", 5),
    ("metadata", "x"),
    ("metadata", [1]),
    ("metadata", 1),
    ("prompt_cache_options", ["x"]),
    ("prompt_logprobs", 21),
    ("stop_token_ids", ["a"]),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("name", "value"), RANGES)
async def test_b40_wrong_types_and_ranges_name_the_field(path: str, name: str, value: Any) -> None:
    body = chat(**{name: value}) if path == CHAT else completion(**{name: value})
    reply = await refuse(path, body)
    assert reply.status == 400
    assert reply.error["param"].startswith(name)
    assert name in reply.error["message"]


CHAT_RANGES: list[tuple[str, Any]] = [
    ("max_completion_tokens", 0),
    ("top_logprobs", 5),  # without logprobs
    ("logprobs", 5),
    ("logprobs", "true"),
    ("messages", "hi"),
    ("messages", None),
    ("messages", [{"role": "user"}]),
    ("messages", [{"content": "x"}]),
    ("messages", [{"role": "user", "content": None}]),
    ("messages", [{"role": "user", "content": 5}]),
    ("messages", [{"role": "robot", "content": "x"}]),
    ("messages", [{"role": "tool", "content": "x", "tool_call_id": "1"}]),
    ("messages", [{"role": "user", "content": "x", "colour": 1}]),
    ("messages", [{"role": "user", "content": [{"type": "text"}]}]),
    ("messages", [{"role": "user", "content": ["x"]}]),
    ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
    ("messages", [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]),
]


@pytest.mark.parametrize(("name", "value"), CHAT_RANGES)
async def test_chat_fields_are_checked(name: str, value: Any) -> None:
    reply = await refuse(CHAT, {**chat(), name: value})
    assert reply.status == 400
    assert reply.error["param"].startswith((name, "role", "content"))


@pytest.mark.parametrize("value", [-1, 21])
async def test_top_logprobs_have_a_range(value: int) -> None:
    reply = await refuse(CHAT, chat(logprobs=True, top_logprobs=value))
    assert reply.error["param"] == "top_logprobs"


UNSUPPORTED: list[tuple[str, Any]] = [
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("tools", []),
    ("tool_choice", "required"),
    ("functions", [{"name": "f"}]),
    ("function_call", "auto"),
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
    ("audio", {"voice": "alloy"}),
    ("modalities", ["text", "audio"]),
    ("prediction", {"type": "content", "content": "x"}),
    ("web_search_options", {}),
    ("reasoning_effort", "high"),
    ("verbosity", "low"),
    ("store", True),
    ("chat_template", "{{ x }}"),
    ("documents", [{}]),
    ("echo", True),
    ("structured_outputs", {"json": {}}),
    ("use_beam_search", True),
    ("truncate_prompt_tokens", 5),
    ("allowed_token_ids", [1]),
    ("bad_words", ["x"]),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
async def test_known_fields_that_do_nothing_here_are_refused_by_name(
    name: str, value: Any, stream: bool
) -> None:
    reply = await refuse(CHAT, chat(stream=stream, **{name: value}))
    assert reply.status == 400
    assert reply.error["param"] == name
    assert reply.error["code"] == "unsupported_parameter"


async def test_a_suffix_is_refused() -> None:
    assert (await refuse(COMPLETIONS, completion(suffix="x"))).error["param"] == "suffix"


async def test_prompt_logprobs_need_a_whole_answer() -> None:
    reply = await refuse(COMPLETIONS, completion(prompt_logprobs=1, stream=True))
    assert reply.error["param"] == "prompt_logprobs"


@pytest.mark.parametrize("options", [{"include_obfuscation": True}, {"other": 1}, {"a" * 99: 1}, 5])
async def test_stream_options_are_checked(options: Any) -> None:
    reply = await refuse(CHAT, chat(stream=True, stream_options=options))
    assert reply.error["param"].startswith("stream_options")


async def test_an_unknown_field_is_refused_with_the_nearest_known_one() -> None:
    reply = await refuse(CHAT, chat(temprature=1))
    assert reply.error["code"] == "unknown_parameter"
    assert reply.error["param"] == "temprature"
    assert "temperature" in reply.error["message"]


async def test_a_missing_field_is_named() -> None:
    assert (await refuse(CHAT, {"model": MODEL})).error["param"] == "messages"
    assert (await refuse(COMPLETIONS, {"model": MODEL})).error["param"] == "prompt"


MIXED_PROMPTS = [["a", 1], [1, [2]], [["a"]], [None], 5, {}, [1.5], [True], [[1], "a"]]


@pytest.mark.parametrize("prompt", MIXED_PROMPTS)
async def test_mixed_prompts_are_refused(prompt: Any) -> None:
    assert (await refuse(COMPLETIONS, completion(prompt))).error["param"].startswith("prompt")


async def test_too_many_prompts_and_choices_are_refused() -> None:
    assert (await refuse(COMPLETIONS, completion(["a"] * 1025))).error["param"] == "prompt"
    many = completion(["a"] * 100, n=11, temperature=1)
    assert "must not exceed 1024" in (await refuse(COMPLETIONS, many)).error["message"]


HUGE = "x" * 1_000_000
BIG_ERRORS: list[tuple[str, Any]] = [
    (CHAT, {"messages": [5] * 12_000}),
    (CHAT, {"messages": [{"role": HUGE, "content": "x"}]}),
    (CHAT, chat() | {"model": HUGE}),
    (CHAT, chat() | {HUGE: 1}),
    (CHAT, chat(stream=True, stream_options={HUGE: 1})),
    (CHAT, chat(temperature=HUGE)),
    (CHAT, chat(service_tier=HUGE)),
    (CHAT, chat(logit_bias={HUGE: 1})),
    (COMPLETIONS, completion([10**3000])),
    (COMPLETIONS, completion(stop_token_ids=[10**15] * 10_000)),
    (COMPLETIONS, completion(min_tokens=10**18)),
    (COMPLETIONS, completion(max_tokens=10**4000)),
]


@pytest.mark.parametrize(("path", "body"), BIG_ERRORS)
async def test_b42_errors_stay_small_whatever_was_sent(path: str, body: Any) -> None:
    reply = await refuse(path, body)  # which checks the size of the error
    assert len(reply.error["message"]) < 1000


SMALL_BODIES = Setup(settings=ServerSettings(max_body_bytes=1000))


async def test_b42_a_declared_length_beyond_the_limit_is_413_unread() -> None:
    async with running(SMALL_BODIES) as service:
        headers = {"content-type": "application/json", "content-length": "100000000"}
        reply = await call(service.app, CHAT, headers=headers, chunks=[])
    assert reply.status == 413
    assert reply.error["code"] == "request_too_large"


async def test_b42_a_chunked_body_is_counted() -> None:
    async with running(SMALL_BODIES) as service:
        chunks = [b'{"user": "'] + [b"x" * 300] * 1000
        reply = await call(service.app, CHAT, chunks=chunks)
        fits = await call(service.app, CHAT, chunks=[b" " * 300, json.dumps(chat()).encode()])
    assert reply.status == 413
    assert fits.status == 200


@pytest.mark.parametrize("path", ["/v1/completions/", "/v1/chat/completions/", "/tokenize/"])
async def test_a_slash_too_much_is_no_redirect(path: str) -> None:
    async with running() as service:
        reply = await service.call(path, completion())
    assert reply.status == 404
    assert reply.error["code"] == "not_found"


@pytest.mark.parametrize("stream", [False, True])
async def test_b43_beyond_the_context(stream: bool) -> None:
    bodies = [
        completion([1] * (CONTEXT + 1), stream=stream),
        completion("x" * (CONTEXT + 1), stream=stream),
        completion("x" * 100_000, stream=stream),
        completion("x", max_tokens=CONTEXT, stream=stream),
        completion("x", max_tokens=2**62, stream=stream),
    ]
    for body in bodies:
        reply = await refuse(COMPLETIONS, body)
        assert reply.status == 400
        assert reply.error["code"] == "context_length_exceeded"
        start = f"This model's maximum context length is {CONTEXT} tokens. However, "
        assert reply.error["message"].startswith(start)
    too_much: list[dict[str, Any]] = [{"content": "x" * 600}, {"max_tokens": CONTEXT}]
    for fields in too_much:
        reply = await refuse(CHAT, chat(stream=stream, **fields))
        assert reply.error["code"] == "context_length_exceeded"


async def test_b12_the_context_is_never_larger_than_the_pool() -> None:
    async with running(Setup(num_blocks=4)) as service:
        reply = await service.call(COMPLETIONS, completion([1] * 100))
        short = [await service.call(COMPLETIONS, completion()) for _ in range(10)]
    assert reply.status == 400
    assert all(each.status == 200 for each in short)


@pytest.mark.parametrize("stream", [False, True])
async def test_b44_what_the_template_says_reaches_the_client(stream: bool) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
    reply = await refuse(CHAT, {"messages": messages, "stream": stream})
    assert reply.status == 400
    assert "System message must come first" in reply.error["message"]
    assert reply.error["param"] == "messages"


async def test_b44_a_model_without_a_template_refuses_chat() -> None:
    reply = await refuse(CHAT, chat(), Setup(template=None))
    assert reply.status == 400
    assert "chat template" in reply.error["message"]


async def test_b44_a_template_without_end_is_stopped() -> None:
    endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}x"
    assert (await refuse(CHAT, chat(), Setup(template=endless))).status == 400


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_an_unknown_model_is_404(path: str) -> None:
    body = (chat() if path == CHAT else completion()) | {"model": "gpt-4"}
    reply = await refuse(path, body)
    assert reply.status == 404
    assert reply.error["code"] == "model_not_found"
    assert reply.error["param"] == "model"
    assert "gpt-4" in reply.error["message"]


async def test_unknown_paths_and_methods_have_the_envelope() -> None:
    async with running() as service:
        unknown = await service.call("/v1/nothing", chat())
        long = await service.call("/" + "x" * 10_000, method="GET")
        method = await service.call(CHAT, method="GET")
    assert unknown.status == 404
    assert unknown.error["code"] == "not_found"
    assert len(long.error["message"]) < 300
    assert method.status == 405
    assert method.error["code"] == "method_not_allowed"
    assert method.headers["allow"] == "POST"
