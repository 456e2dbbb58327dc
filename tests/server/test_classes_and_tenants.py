"""Who is asking, and in which class: headers, tiers, priorities, keys, defaults, and their echo."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from loopback import (
    CHAT,
    COMPLETIONS,
    Reply,
    Service,
    Setup,
    chat,
    completion,
    running,
    say,
    usage,
)

from headway.config import ClassSettings, ServerSettings, TenantSettings
from headway.core.request import Request

CLASSES = {
    "interactive": ClassSettings(priority=-1),
    "batch": ClassSettings(priority=5),
    "eval": ClassSettings(priority=5),
}
TENANTS = {
    "acme": TenantSettings(api_key=("acme-key",), default_class="batch"),
    "other": TenantSettings(api_key=("other-key", "other-key-2")),
}
GATEWAY = ServerSettings(port=0, class_header="X-Class", tenant_header="X-Tenant")


def watch(service: Service) -> list[Request]:
    """Return a list that every submitted request gets into."""
    seen: list[Request] = []
    submit = service.engine.submit

    async def spy(request: Request) -> Any:
        seen.append(request)
        return await submit(request)

    service.engine.submit = spy  # type: ignore[method-assign]
    return seen


async def ask(
    setup: Setup, headers: Mapping[str, str] | None = None, **fields: Any
) -> tuple[Reply, Request | None]:
    async with running(setup) as service:
        seen = watch(service)
        reply = await service.call(CHAT, chat(**fields), headers=headers)
        await service.until_idle()
    return reply, seen[0] if seen else None


async def placed(setup: Setup, headers: Mapping[str, str] | None = None, **fields: Any) -> Request:
    """Return the request that the scheduler got; its class must be in the answer."""
    reply, request = await ask(setup, headers, **fields)
    assert reply.status == 200, reply.body
    assert request is not None
    assert reply.headers["x-headway-class"] == request.class_name
    assert reply.json["service_tier"] == request.class_name
    return request


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


# ------------------------------------------------------------------ the order


async def test_without_classes_there_is_one() -> None:
    request = await placed(Setup())
    assert (request.class_name, request.tenant, request.priority) == ("default", "", None)


@pytest.mark.parametrize("tier", [None, "auto", "default"])
async def test_silence_is_the_servers_default(tier: str | None) -> None:
    setup = Setup(classes=CLASSES)
    assert (await placed(setup, service_tier=tier)).class_name == "interactive"  # the first
    named = Setup(classes={**CLASSES, "default": ClassSettings()})
    assert (await placed(named, service_tier=tier)).class_name == "default"
    settings = ServerSettings(port=0, default_class="eval")
    assert (await placed(Setup(classes=CLASSES, settings=settings))).class_name == "eval"


async def test_each_source_wins_over_the_ones_behind_it() -> None:
    setup = Setup(classes=CLASSES, tenants=TENANTS, settings=GATEWAY)
    headers = key("acme-key")
    assert (await placed(setup, headers)).class_name == "batch"
    assert (await placed(setup, headers, priority=-1)).class_name == "interactive"
    assert (await placed(setup, headers, priority=-1, service_tier="eval")).class_name == "eval"
    headers["X-Class"] = "batch"
    request = await placed(setup, headers, priority=-1, service_tier="eval")
    assert request.class_name == "batch"


async def test_a_priority_that_names_no_class_is_the_requests_own() -> None:
    setup = Setup(classes=CLASSES)
    one = await placed(setup, priority=-1)  # exactly one class declares it
    assert (one.class_name, one.priority) == ("interactive", None)
    two = await placed(setup, priority=5)  # two do
    assert (two.class_name, two.priority) == ("interactive", 5)
    none = await placed(setup, priority=0)  # it is the default of all, and declared by none
    assert (none.class_name, none.priority) == ("interactive", 0)
    beside = await placed(setup, priority=-1, service_tier="batch")
    assert (beside.class_name, beside.priority) == ("batch", -1)


async def test_an_unknown_tier_names_the_classes() -> None:
    reply, request = await ask(Setup(classes=CLASSES), service_tier="flex")
    assert request is None
    assert reply.status == 400
    assert (reply.error["param"], reply.error["code"]) == ("service_tier", "invalid_value")
    assert "interactive, batch, eval" in reply.error["message"]


async def test_an_unknown_class_of_the_gateway_is_refused() -> None:
    setup = Setup(classes=CLASSES, settings=GATEWAY)
    reply, request = await ask(setup, {"x-class": "gold"})
    assert request is None
    assert (reply.status, reply.error["param"]) == (400, None)
    assert "X-Class" in reply.error["message"]


async def test_headers_are_not_believed_unless_that_is_set() -> None:
    setup = Setup(classes=CLASSES)
    headers = {"X-Class": "eval", "x-headway-class": "eval", "X-Tenant": "acme"}
    request = await placed(setup, headers)
    assert (request.class_name, request.tenant) == ("interactive", "")


@pytest.mark.parametrize("empty", ["", "  "])
async def test_an_empty_header_says_nothing(empty: str) -> None:
    setup = Setup(classes=CLASSES, tenants=TENANTS, settings=GATEWAY)
    headers = {**key("acme-key"), "X-Class": empty, "X-Tenant": empty}
    request = await placed(setup, headers)
    assert (request.class_name, request.tenant) == ("batch", "acme")


@pytest.mark.parametrize("name", ["X-Class", "X-Tenant"])
async def test_a_header_that_comes_twice_is_not_believed(name: str) -> None:
    """A gateway that adds its own behind the client's would be overruled by the client."""
    setup = Setup(classes=CLASSES, settings=GATEWAY)
    reply, request = await ask(setup, {name: "eval", name.lower(): "batch"})
    assert request is None
    assert reply.status == 400
    assert name in reply.error["message"]


# ------------------------------------------------------------------ tenants


async def test_a_key_names_its_tenant() -> None:
    setup = Setup(tenants={"a": TenantSettings(api_key=("ka",)), "b": TenantSettings()})
    assert (await placed(setup, key("ka"))).tenant == "a"


async def test_keys_of_tenants_count_beside_those_of_the_server() -> None:
    settings = ServerSettings(port=0, api_key=("plain",))
    setup = Setup(settings=settings, tenants=TENANTS, classes=CLASSES)
    nameless = (await placed(setup, key("plain"))).tenant
    assert nameless not in ("", "plain", "acme", "other")
    assert (await placed(setup, key("other-key"))).tenant == "other"
    assert (await placed(setup, key("other-key-2"))).tenant == "other"
    reply, _ = await ask(setup, key("acme"))
    assert reply.status == 401


async def test_a_tenants_key_alone_closes_the_door_to_everybody_else() -> None:
    setup = Setup(tenants=TENANTS, classes=CLASSES)
    reply, _ = await ask(setup)
    assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")


async def test_the_gateways_tenant_wins_over_the_key_and_has_its_default_class() -> None:
    setup = Setup(tenants=TENANTS, classes=CLASSES, settings=GATEWAY)
    request = await placed(setup, {**key("other-key"), "X-Tenant": "acme"})
    assert (request.tenant, request.class_name) == ("acme", "batch")
    request = await placed(setup, {**key("other-key"), "X-Tenant": "of the gateway's own"})
    assert (request.tenant, request.class_name) == ("of the gateway's own", "interactive")


async def test_a_tenants_name_is_bounded() -> None:
    reply, request = await ask(Setup(settings=GATEWAY), {"X-Tenant": "t" * 129})
    assert request is None
    assert (reply.status, reply.error["param"]) == (400, None)
    assert reply.error["message"] == "Invalid header 'X-Tenant': must have at most 128 characters."


async def test_a_client_cannot_name_its_tenant() -> None:
    request = await placed(Setup(tenants=TENANTS, classes=CLASSES), key("other-key"), user="acme",
                           safety_identifier="acme")  # fmt: skip
    assert request.tenant == "other"


async def test_tenants_do_not_share_prefixes_and_salts_reach_the_request() -> None:
    setup = Setup(tenants=TENANTS, classes=CLASSES)
    salts = [
        (await placed(setup, key(each), cache_salt=salt)).cache_salt
        for each in ("acme-key", "other-key")
        for salt in (None, "s")
    ]
    assert len(set(salts)) == 4


# ------------------------------------------------------------------ fields


async def test_expected_output_tokens_reach_the_request() -> None:
    assert (await placed(Setup(), expected_output_tokens=9)).expected_output_tokens == 9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 101),
        ("priority", -101),
        ("priority", 10**40),
        ("priority", 1.5),
        ("priority", True),
        ("priority", "1"),
        ("expected_output_tokens", 0),
        ("expected_output_tokens", -1),
        ("expected_output_tokens", 10**40),
        ("cache_salt", ""),
        ("cache_salt", "x" * 513),
        ("cache_salt", 1),
        ("service_tier", ""),
        ("service_tier", 1),
        ("service_tier", "x" * 5000),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_values_that_mean_nothing_are_refused(path: str, field: str, value: Any) -> None:
    body = chat(**{field: value}) if path == CHAT else completion(**{field: value})
    async with running() as service:
        reply = await service.call(path, body)
    assert reply.status == 400
    assert reply.error["param"] == field


# ------------------------------------------------------------------ what the answer says

SHORT = {"short": ClassSettings(max_output_tokens=3), "long": ClassSettings()}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_class_cuts_answers_and_says_so(path: str, stream: bool) -> None:
    fields: dict[str, Any] = {"max_tokens": 100, "stream": stream}
    body = chat(**fields) if path == CHAT else completion(["a", "b"], **fields)
    async with running(Setup(script=say("abcdefgh"), classes=SHORT)) as service:
        reply = await service.call(path, body)
    assert reply.headers["x-headway-max-tokens"] == "3"
    assert reply.headers["x-headway-class"] == "short"
    if stream:
        ends = [choice for event in reply.events[:-1] for choice in event["choices"]]
        reasons = {choice["finish_reason"] for choice in ends} - {None}
        assert all(event["service_tier"] == "short" for event in reply.events[:-1])
    else:
        reasons = {choice["finish_reason"] for choice in reply.json["choices"]}
    assert reasons == {"length"}


async def test_an_answer_within_the_limit_says_nothing_of_it() -> None:
    reply, _ = await ask(Setup(classes=SHORT), max_tokens=2)
    assert "x-headway-max-tokens" not in reply.headers
    reply, _ = await ask(Setup(classes=SHORT), max_tokens=100, service_tier="long")
    assert "x-headway-max-tokens" not in reply.headers


async def test_refusals_name_the_class_too() -> None:
    setup = Setup(
        script=say("x" * 40), gated=True, max_num_seqs=1, max_queue_requests=0, classes=CLASSES
    )
    async with running(setup) as service:
        first = chat(service_tier="batch")
        task = asyncio.create_task(service.call(CHAT, first))
        await service.until(service.executor.is_waiting.is_set)
        second = asyncio.create_task(service.call(CHAT, chat(service_tier="eval")))
        await service.until_asked()
        service.executor.allow(1000)
        await task
        reply = await second
    assert (reply.status, reply.error["code"]) == (503, "queue_full")
    assert reply.headers["x-headway-class"] == "eval"


async def test_reserved_capacity_that_is_taken_is_a_429_with_retry_after() -> None:
    classes = {
        "default": ClassSettings(),
        "live": ClassSettings(reserved_slots=1, reserved_blocks=8, max_output_tokens=32),
    }
    setup = Setup(script=say("x" * 30), gated=True, classes=classes)
    async with running(setup) as service:
        task = asyncio.create_task(service.call(CHAT, chat(service_tier="live")))
        await service.until(service.executor.is_waiting.is_set)
        second = asyncio.create_task(service.call(CHAT, chat(service_tier="live")))
        await service.until_asked()
        service.executor.allow(1000)
        assert (await task).status == 200
        reply = await second
    assert reply.status == 429
    assert reply.error["code"] == "reserved_capacity_full"
    assert reply.error["type"] == "rate_limit_error"
    assert int(reply.headers["retry-after"]) >= 1


async def test_a_silent_client_learns_to_what_its_reservation_cuts_the_answer() -> None:
    classes = {"live": ClassSettings(reserved_slots=1, reserved_blocks=8), "x": ClassSettings()}
    async with running(Setup(script=say("abc"), classes=classes)) as service:
        silent = await service.call(CHAT, chat(service_tier="live"))
        stated = await service.call(CHAT, chat(service_tier="live", max_tokens=3))
    assert (silent.status, stated.status) == (200, 200)
    assert int(silent.headers["x-headway-max-tokens"]) > 0
    assert "x-headway-max-tokens" not in stated.headers


async def test_usage_says_what_was_in_the_cache() -> None:
    text = "x" * 100
    async with running(Setup(enable_prefix_sharing=True)) as service:
        first = (await service.call(COMPLETIONS, completion(text))).json["usage"]
        second = (await service.call(COMPLETIONS, completion(text))).json["usage"]
        other = await service.call(COMPLETIONS, completion(text, cache_salt="other"))
    assert first == usage(100, 6)
    assert second["prompt_tokens_details"]["cached_tokens"] >= 96
    assert second["prompt_tokens"] == 100
    assert other.json["usage"] == usage(100, 6)


async def test_several_prompts_add_up_what_was_in_the_cache() -> None:
    text = "x" * 64
    async with running(Setup(enable_prefix_sharing=True)) as service:
        await service.call(COMPLETIONS, completion(text + "1"))
        fields = {"stream": True, "stream_options": {"include_usage": True}}
        body = completion([text + "2", text + "3", "y"], **fields)
        reply = await service.call(COMPLETIONS, body)
    assert reply.events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] == 128
