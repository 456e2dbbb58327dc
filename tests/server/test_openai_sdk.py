"""The official SDK as client, over a real port, with retries off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from loopback import CONTEXT, MODEL, Service, Setup, by_index, listening, say

from headway.config import ClassSettings, ServerSettings

MESSAGES: Any = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def sdk(
    setup: Setup | None = None, api_key: str = "any"
) -> AsyncIterator[tuple[openai.AsyncOpenAI, Service]]:
    async with (
        listening(setup) as service,
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key=api_key, max_retries=0) as client,
    ):
        yield client, service


async def collect(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


async def test_chat() -> None:
    async with sdk() as (client, _):
        answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, seed=1)
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.service_tier == "default"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 13


async def test_chat_from_a_synchronous_client() -> None:
    def ask(url: str) -> str | None:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
            answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)
            return answer.choices[0].message.content

    async with listening() as service:
        assert await asyncio.to_thread(ask, service.url) == "Hello"


async def test_chat_stream_with_three_choices_and_usage() -> None:
    async with sdk(Setup(script=by_index("one", "two!", "3"))) as (client, _):
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, n=3, stream_options={"include_usage": True}
        )
        texts, finishes, usage = {0: "", 1: "", 2: ""}, dict[int, str](), None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    assert choice.index not in finishes
                    finishes[choice.index] = choice.finish_reason
    assert texts == {0: "one", 1: "two!", 2: "3"}
    assert finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 4 + 5 + 2)


async def test_the_stream_accumulator_of_the_sdk() -> None:
    async with (
        sdk(Setup(script=say("Hey, ď!"))) as (client, _),
        client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream,
    ):
        await collect(stream)
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Hey, ď!"
    assert final.choices[0].finish_reason == "stop"


async def test_chat_logprobs() -> None:
    async with sdk(Setup(script=say("ab"))) as (client, _):
        answer = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2
        )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [entry.token for entry in logprobs.content] == ["a", "b", "<eos>"]
    assert len(logprobs.content[0].top_logprobs) == 2


async def test_completions() -> None:
    async with sdk() as (client, _):
        answer = await client.completions.create(
            model=MODEL, prompt=["a", "b"], n=2, logprobs=1, echo=True
        )
        stream = await client.completions.create(model=MODEL, prompt="a", stream=True)
        streamed = "".join([chunk.choices[0].text async for chunk in stream])
    assert [choice.text for choice in answer.choices] == ["aHello", "aHello", "bHello", "bHello"]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["a", "H", "e", "l", "l", "o", "<eos>"]
    assert streamed == "Hello"


async def test_models() -> None:
    async with sdk() as (client, _):
        models = [model.id async for model in client.models.list()]
        one = await client.models.retrieve(MODEL)
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")
    assert models == [MODEL]
    assert one.id == MODEL


async def test_extra_fields_of_vllm() -> None:
    async with sdk(Setup(script=say("abc"))) as (client, _):
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            extra_body={"top_k": 5, "ignore_eos": True, "return_token_ids": True},
            max_tokens=5,
        )
    assert answer.model_extra is not None
    assert len(answer.model_extra["prompt_token_ids"]) == 7


ERRORS: list[tuple[dict[str, Any], type[openai.APIStatusError], str | None, str | None]] = [
    ({"temperature": 9}, openai.BadRequestError, "temperature", "invalid_value"),
    ({"model": "other"}, openai.NotFoundError, "model", "model_not_found"),
    ({"max_tokens": CONTEXT}, openai.BadRequestError, "messages", "context_length_exceeded"),
    ({"extra_body": {"x": 1}}, openai.BadRequestError, "x", "unknown_parameter"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "kind", "param", "code"), ERRORS)
async def test_errors_have_the_sdks_types(
    fields: dict[str, Any],
    kind: type[openai.APIStatusError],
    param: str | None,
    code: str | None,
    stream: bool,
) -> None:
    arguments: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, **fields}
    async with sdk() as (client, _):
        with pytest.raises(kind) as caught:
            await client.chat.completions.create(stream=stream, **arguments)
    assert (caught.value.param, caught.value.code) == (param, code)


async def test_keys() -> None:
    setup = Setup(settings=ServerSettings(port=0, api_key=("right",)))
    async with sdk(setup, "wrong") as (client, _):
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    async with sdk(setup, "right") as (client, _):
        assert (await client.models.list()).data


async def test_a_body_that_is_too_large() -> None:
    setup = Setup(settings=ServerSettings(port=0, max_body_bytes=1000))
    async with sdk(setup) as (client, _service):
        with pytest.raises(openai.APIStatusError) as caught:
            await client.completions.create(model=MODEL, prompt="x" * 2_000_000)
        assert caught.value.status_code == 413
        again = await client.completions.create(model=MODEL, prompt="x")
        assert again.choices[0].text == "Hello"


async def test_b37_a_failure_inside_a_stream_raises_in_the_client() -> None:
    def script(new: Any, position: int) -> int:
        if position == 2:
            raise RuntimeError("x")
        return ord("x")

    async with sdk(Setup(script=script, gated=True)) as (client, service):
        service.executor.allow(1)
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        first = await anext(stream)
        service.executor.allow(10)
        with pytest.raises(openai.APIError) as caught:
            await collect(stream)
    assert first.choices[0].delta.role == "assistant"
    assert caught.value.code == "engine_error"


async def test_b37_keep_alives_do_not_disturb_the_client() -> None:
    settings = ServerSettings(port=0, sse_keep_alive_s=0.01)
    setup = Setup(script=say("Hey"), gated=True, settings=settings)
    async with sdk(setup) as (client, service):
        # the response starts with a keep-alive, since no step is allowed yet
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        service.executor.allow(100)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "Hey"


async def test_b01_closing_a_stream_ends_the_work() -> None:
    async with sdk(Setup(script=say("x" * 400), gated=True)) as (client, service):
        service.executor.allow(1)
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        await anext(stream)
        await service.until_held_after(1)
        await stream.close()
        await service.until_asked()
        service.executor.allow(1)
        await service.until_idle()
        assert service.scheduler.statistics().num_cancelled == 1


async def test_b55_a_full_queue_is_an_error_that_can_be_retried() -> None:
    setup = Setup(gated=True, max_num_seqs=1, max_queue_requests=1)
    async with sdk(setup) as (client, service):

        async def ask() -> Any:
            return await client.chat.completions.create(model=MODEL, messages=MESSAGES)

        first = asyncio.create_task(ask())
        await service.until(service.executor.is_waiting.is_set)
        others = [asyncio.create_task(ask()) for _ in range(3)]
        await service.until_asked(3)
        service.executor.allow(1000)
        results = await asyncio.gather(first, *others, return_exceptions=True)
    refused = [each for each in results if isinstance(each, openai.InternalServerError)]
    assert len(refused) == 2
    assert all(error.status_code == 503 for error in refused)
    assert all(error.code == "queue_full" for error in refused)
    assert all(int(error.response.headers["retry-after"]) >= 1 for error in refused)


async def test_classes_salts_and_cached_tokens_pass_through_the_sdk() -> None:
    classes = {"chat": ClassSettings(), "batch": ClassSettings(max_output_tokens=2)}
    setup = Setup(classes=classes, enable_prefix_sharing=True)
    fields: Any = {
        "service_tier": "batch",
        "max_tokens": 50,
        "extra_body": {"priority": 3, "cache_salt": "s", "expected_output_tokens": 4},
    }
    messages: Any = [{"role": "user", "content": "x" * 64}]
    async with sdk(setup) as (client, _):
        create = client.chat.completions.with_raw_response.create
        first, second = [await create(model=MODEL, messages=messages, **fields) for _ in range(2)]
    assert second.headers["x-headway-class"] == "batch"
    assert second.headers["x-headway-max-tokens"] == "2"
    answer = second.parse()
    assert (answer.service_tier, answer.choices[0].finish_reason) == ("batch", "length")
    cached = [
        usage.prompt_tokens_details.cached_tokens or 0
        for usage in (first.parse().usage, answer.usage)
        if usage is not None and usage.prompt_tokens_details is not None
    ]
    assert cached[0] == 0
    assert cached[1] >= 64
