"""From prompts to requests: limits, defaults, seeds."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tiny_text import EOS, VOCAB_SIZE, RecordingEngine, make_tokenizer

from headway.core.request import Request
from headway.errors import RequestError
from headway.generation import generator as generator_module
from headway.generation.generator import COMPLETION_MAX_TOKENS, Generator
from headway.generation.params import GenerationParams
from headway.generation.terms import Terms
from headway.text.chat_template import ChatTemplate

CONTEXT = 64


def make(engine: RecordingEngine | None = None, **changes: Any) -> Generator:
    arguments: dict[str, Any] = {
        "engine": engine or RecordingEngine(),
        "tokenizer": make_tokenizer(),
        "chat_template": ChatTemplate(
            "{% for m in messages %}{{ m.content }}{% endfor %}", None, None
        ),
        "eos_token_ids": (EOS,),
        "generation_defaults": {},
        "vocab_size": VOCAB_SIZE,
        "max_model_len": CONTEXT,
    }
    return Generator(**(arguments | changes))


async def submitted(
    params: GenerationParams | None = None,
    *,
    prompt: tuple[int, ...] = (1, 2, 3),
    default_max_tokens: int | None = None,
    terms: Terms | None = None,
    **changes: Any,
) -> Request:
    engine = RecordingEngine()
    generator = make(engine, **changes)
    stream = await generator.generate(
        prompt, params or GenerationParams(), default_max_tokens=default_max_tokens, terms=terms
    )
    stream.cancel("test")
    (request,) = engine.requests
    return request


async def test_the_context_left_is_the_default_length() -> None:
    assert (await submitted()).sampling.max_tokens == CONTEXT - 3


@pytest.mark.parametrize(("num_prompt", "expected"), [(3, 16), (CONTEXT - 5, 5)])
async def test_a_default_length_is_cut_to_the_context(num_prompt: int, expected: int) -> None:
    request = await submitted(
        prompt=tuple(range(num_prompt)), default_max_tokens=COMPLETION_MAX_TOKENS
    )
    assert request.sampling.max_tokens == expected


async def test_min_tokens_raises_the_default_length() -> None:
    params = GenerationParams(min_tokens=20)
    assert (await submitted(params, default_max_tokens=16)).sampling.max_tokens == 20


TOO_LONG = [
    (CONTEXT + 1, GenerationParams()),
    (CONTEXT, GenerationParams()),
    (CONTEXT - 3, GenerationParams(max_tokens=4)),
    (CONTEXT - 3, GenerationParams(min_tokens=4)),
]


@pytest.mark.parametrize(("num_prompt", "params"), TOO_LONG)
async def test_b43_beyond_the_context_is_refused_with_the_code_agents_look_for(
    num_prompt: int, params: GenerationParams
) -> None:
    with pytest.raises(RequestError) as caught:
        await submitted(params, prompt=tuple([1] * num_prompt))
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.status == 400
    assert str(caught.value).startswith("This model's maximum context length is 64 tokens. However")


async def test_the_whole_context_can_be_used() -> None:
    params = GenerationParams(max_tokens=4)
    request = await submitted(params, prompt=tuple([1] * (CONTEXT - 4)))
    assert request.sampling.max_tokens == 4


async def test_b23_an_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        await submitted(prompt=())
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("bad", [-1, VOCAB_SIZE, 2**40])
async def test_b31_prompt_ids_are_checked_against_the_vocabulary(bad: int) -> None:
    with pytest.raises(RequestError, match=str(bad)) as caught:
        await submitted(prompt=(1, bad))
    assert caught.value.param == "prompt"


async def test_the_models_defaults_apply_where_the_client_is_silent() -> None:
    defaults = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.1}
    sampling = (await submitted(generation_defaults=defaults)).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert sampling.repetition_penalty == 1.1
    params = GenerationParams(temperature=0.0, top_p=1.0, top_k=-1, repetition_penalty=1.0)
    sampling = (await submitted(params, generation_defaults=defaults)).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 1.0, 0)
    assert sampling.repetition_penalty == 1.0


async def test_the_end_ids_stop_unless_ignored() -> None:
    params = GenerationParams(stop_token_ids=(5,))
    assert (await submitted(params)).sampling.stop_token_ids == (5, EOS)
    params = GenerationParams(stop_token_ids=(5,), ignore_eos=True)
    assert (await submitted(params)).sampling.stop_token_ids == (5,)


async def test_seeds_are_kept_and_made_up_only_where_there_is_none() -> None:
    assert (await submitted(GenerationParams(seed=7))).sampling.seed == 7
    seeds = {(await submitted(base_seed=None)).sampling.seed for _ in range(8)}
    assert len(seeds) == 8
    one, other = await submitted(base_seed=3), await submitted(base_seed=3)
    assert one.sampling.seed == other.sampling.seed
    assert (await submitted(GenerationParams(seed=-1), base_seed=3)).sampling == one.sampling


async def test_terms_and_ids_reach_the_request() -> None:
    terms = Terms(class_name="batch", tenant="t", priority=-3, expected_output_tokens=7)
    one, other = await submitted(terms=terms), await submitted(default_class="chat")
    assert (one.class_name, one.tenant, one.priority) == ("batch", "t", -3)
    assert one.expected_output_tokens == 7
    assert (one.queue_timeout_s, one.request_timeout_s) == (None, None)  # those of the class
    assert (other.class_name, other.tenant, other.priority) == ("chat", "", None)
    assert one.request_id != other.request_id


async def test_what_a_silent_client_gets_is_what_its_class_can_have() -> None:
    lengths = {"small": 20}
    request = await submitted(terms=Terms(class_name="small"), longest_by_class=lengths)
    assert request.sampling.max_tokens == 20 - 3
    assert (await submitted(longest_by_class=lengths)).sampling.max_tokens == CONTEXT - 3
    with pytest.raises(RequestError, match="is 20 tokens here"):
        await submitted(prompt=(1,) * 20, terms=Terms(class_name="small"), longest_by_class=lengths)


@pytest.mark.parametrize(
    ("class_name", "fields", "default", "cut_to"),
    [
        ("small", {}, None, 17),
        ("small", {}, 17, None),  # the default fits
        ("small", {}, 18, 17),
        ("small", {"min_tokens": 17}, 9, None),
        ("small", {"max_tokens": 9}, None, None),
        ("default", {}, None, None),
    ],
)
async def test_a_stream_says_that_the_class_has_no_room_for_the_default(
    class_name: str, fields: dict[str, int], default: int | None, cut_to: int | None
) -> None:
    stream = await make(longest_by_class={"small": 20}).generate(
        (1, 2, 3),
        GenerationParams(**fields),
        default_max_tokens=default,
        terms=Terms(class_name=class_name),
    )
    assert stream.clamped_max_tokens == cut_to


async def test_tenants_share_prefixes_only_if_that_is_wanted() -> None:
    all_terms = [
        Terms(tenant=tenant, cache_salt=salt)
        for tenant, salt in (("", None), ("a", None), ("a", "bc"), ("ab", "c"), ("", "1:a"))
    ]
    apart = [(await submitted(terms=terms)).cache_salt for terms in all_terms]
    assert len(set(apart)) == len(apart)
    together = [
        (await submitted(terms=terms, isolates_tenants=False)).cache_salt for terms in all_terms
    ]
    assert together == ["", "", "bc", "c", "1:a"]


@pytest.mark.parametrize(
    ("terms", "param"),
    [
        (Terms(priority=101), "priority"),
        (Terms(priority=True), "priority"),
        (Terms(priority=1.5), "priority"),  # type: ignore[arg-type]
        (Terms(expected_output_tokens=0), "expected_output_tokens"),
        (Terms(cache_salt=""), "cache_salt"),
        (Terms(cache_salt="x" * 513), "cache_salt"),
        (Terms(cache_salt="\ud800"), "cache_salt"),
        (Terms(tenant="t" * 129), "tenant"),
        (Terms(tenant=None), "tenant"),  # type: ignore[arg-type]
        (Terms(class_name=""), "class_name"),
        ("batch", "terms"),
    ],
)
async def test_terms_are_checked(terms: Terms, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        await submitted(terms=terms)
    assert caught.value.param == param


async def test_everything_else_reaches_the_executor() -> None:
    params = GenerationParams(
        min_p=0.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={9: 1.0, 3: -1.0},
        logprobs=2,
        prompt_logprobs=1,
        n=2,
        min_tokens=1,
    )
    request = await submitted(params)
    sampling = request.sampling
    assert request.n == 2
    assert sampling.logit_bias == ((3, -1.0), (9, 1.0))
    assert (sampling.min_p, sampling.presence_penalty) == (0.1, 0.5)
    assert (sampling.frequency_penalty, sampling.min_tokens) == (-0.5, 1)
    assert (sampling.logprobs, sampling.prompt_logprobs) == (2, 1)


async def test_b20_hopelessly_long_text_is_never_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make()
    monkeypatch.setattr(
        type(generator.tokenizer), "encode_batch", lambda *_, **__: pytest.fail("tokenised")
    )
    with pytest.raises(RequestError) as caught:
        await generator.encode("x" * 5_000_000)
    assert caught.value.code == "context_length_exceeded"


async def test_b20_long_text_is_tokenised_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = make(max_model_len=100_000)
    threads = []
    encode = type(generator.tokenizer).encode_batch

    def spy(self: Any, texts: list[str], **options: Any) -> list[list[int]]:
        threads.append(threading.current_thread())
        return encode(self, texts, **options)

    monkeypatch.setattr(type(generator.tokenizer), "encode_batch", spy)
    text = "x" * (generator_module.MAX_INLINE_CHARACTERS + 1)
    assert len(await generator.encode(text)) == len(text)
    assert threads
    assert threads[0] is not threading.current_thread()


async def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(RequestError):
        await make().encode("\ud800")


async def test_b44_a_conversation_is_rendered_and_tokenised() -> None:
    ids = await make().encode_chat([{"role": "user", "content": "hi"}])
    assert ids == tuple(b"hi")


async def test_b44_no_template_is_a_client_error() -> None:
    generator = make(chat_template=ChatTemplate(None, None, None))
    with pytest.raises(RequestError) as caught:
        await generator.encode_chat([{"role": "user", "content": "hi"}])
    assert caught.value.status == 400
