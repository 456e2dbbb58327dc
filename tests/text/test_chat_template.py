"""Chat templates render as ``transformers`` renders them, and fail as errors of one request."""

from __future__ import annotations

from typing import Any

import pytest
from template_samples import ALL, EITHER, LLAMA3, MISTRAL, PARTS_ONLY, QWEN25, SMOLLM2
from transformers.utils.chat_template_utils import render_jinja_template

from headway.errors import ModelError, RequestError
from headway.text.chat_template import ChatTemplate, load_chat_template

BOS, EOS = "<s>", "</s>"
USER = {"role": "user", "content": 'Wie geht\'s? <b>&"ü" 漢字'}
ANSWER = {"role": "assistant", "content": " Fine, thanks. "}
SYSTEM = {"role": "system", "content": "Be brief."}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Température à <b>",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Zürich"}},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"t": 7}'}

CONVERSATIONS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ANSWER, {"role": "user", "content": "And you?\n"}],
}


def reference(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    rendered, _ = render_jinja_template(
        [messages], chat_template=source, bos_token=BOS, eos_token=EOS, **options
    )
    return str(rendered[0])


def rendered(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    return load_chat_template(source, BOS, EOS).render(messages, **options)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", ALL)
def test_text_equals_transformers(
    name: str, conversation: str, add_generation_prompt: bool
) -> None:
    messages = CONVERSATIONS[conversation]
    options = {"add_generation_prompt": add_generation_prompt}
    assert rendered(ALL[name], messages, **options) == reference(ALL[name], messages, **options)


@pytest.mark.parametrize("source", [LLAMA3, QWEN25], ids=["llama3", "qwen2.5"])
def test_tools_equal_transformers(source: str) -> None:
    messages = [USER, CALL, RESULT, ANSWER]
    text = rendered(source, messages, tools=[TOOL])
    assert text == reference(source, messages, tools=[TOOL], add_generation_prompt=True)
    assert '{"city": "Zürich"}' in text


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("content", ["Sure, here", "  spaces kept?  ", "x [[CONTINUE"])
def test_continuing_the_final_message_equals_transformers(name: str, content: str) -> None:
    messages = [USER, {"role": "assistant", "content": content}]
    ours = rendered(ALL[name], messages, continue_final_message=True, add_generation_prompt=False)
    assert ours == reference(ALL[name], messages, continue_final_message=True)
    assert ours.rstrip().endswith(content.strip())


def test_the_embedded_template_is_the_one_compared(smollm2_fields: dict[str, Any]) -> None:
    assert smollm2_fields["tokenizer.chat_template"] == SMOLLM2


def test_more_variables() -> None:
    text = rendered(LLAMA3, [USER], template_kwargs={"date_string": "1 May 2031"})
    assert "Today Date: 1 May 2031" in text
    with pytest.raises(RequestError, match="'messages'") as caught:
        rendered(LLAMA3, [USER], template_kwargs={"messages": []})
    assert caught.value.param == "chat_template_kwargs"


def test_arguments_of_tool_calls_may_be_json_text() -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Zürich"}'}
    as_text = {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "function": function}]}
    assert rendered(QWEN25, [USER, as_text]) == rendered(QWEN25, [USER, CALL])
    function["arguments"] = "{broken"
    with pytest.raises(RequestError, match=r"messages\[1\]\.tool_calls\[0\].*not a JSON object"):
        rendered(QWEN25, [USER, as_text])


@pytest.mark.parametrize("source", [SMOLLM2, QWEN25, LLAMA3], ids=["smollm2", "qwen2.5", "llama3"])
def test_parts_become_text_for_a_template_of_text(source: str) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    text = rendered(source, [{"role": "user", "content": parts}])
    assert text == rendered(source, [{"role": "user", "content": "one\ntwo"}])


def test_text_becomes_parts_for_a_template_of_parts() -> None:
    parts = [{"type": "text", "text": "hi"}]
    text = rendered(PARTS_ONLY, [{"role": "user", "content": "hi"}])
    assert text == rendered(PARTS_ONLY, [{"role": "user", "content": parts}])
    assert text == reference(
        PARTS_ONLY, [{"role": "user", "content": parts}], add_generation_prompt=True
    )


def test_a_template_of_either_gets_what_was_sent() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    for content in (parts, "onetwo"):
        messages = [{"role": "user", "content": content}]
        assert rendered(EITHER, messages) == reference(EITHER, messages)


@pytest.mark.parametrize("message", [{"role": "user", "content": None}, {"role": "user"}])
def test_null_content_is_empty(message: dict[str, Any]) -> None:
    for source in (SMOLLM2, LLAMA3, QWEN25):
        empty = rendered(source, [{"role": "user", "content": ""}])
        assert rendered(source, [message]) == empty
        assert "None" not in empty


def test_messages_are_left_as_they_were() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    rendered(PARTS_ONLY, messages, continue_final_message=True, add_generation_prompt=False)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


# Refusals of the template: cases of a public report, where they became errors of the server.


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([USER, USER], "roles must alternate"),
        ([ANSWER], "roles must alternate"),
        ([USER, {"role": "tool", "content": "x"}], "Only user and assistant roles"),
    ],
)
def test_the_message_of_the_template_reaches_the_client(
    messages: list[dict[str, Any]], match: str
) -> None:
    with pytest.raises(RequestError, match=match) as caught:
        rendered(MISTRAL, messages)
    error = caught.value
    assert (error.code, error.param, error.status) == ("chat_template_error", "messages", 400)


def test_a_forbidden_role() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('No system!') }}{% endif %}"
    with pytest.raises(RequestError, match=r"^No system!$"):
        rendered(source, [SYSTEM, USER])


def test_no_template() -> None:
    with pytest.raises(RequestError) as caught:
        load_chat_template(None, BOS, EOS).render([USER])
    assert (caught.value.code, caught.value.status) == ("chat_template_missing", 400)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].no.such }}",
        "{{ messages[7].role }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 // 0 }}",
        "{{ no_such() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in none %}{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ namespace(__class__=1) }}",
        "{% include 'other' %}",
        "{{ {1: 2} | dictsort(by='nothing') }}",
    ],
)
def test_whatever_fails_inside_is_an_error_of_the_request(source: str) -> None:
    with pytest.raises(RequestError) as caught:
        rendered(source, [USER])
    assert caught.value.code == "chat_template_error"


@pytest.mark.parametrize("source", ["{% for %}", "{{ x", "{% nope %}", "{{ x | no_such_filter }}"])
def test_an_invalid_template_is_refused_when_loaded(source: str) -> None:
    with pytest.raises(ModelError, match="chat template"):
        load_chat_template(source, BOS, EOS)


@pytest.mark.parametrize(
    ("messages", "options", "match"),
    [
        ([], {}, "messages is empty"),
        ([USER], {"continue_final_message": True}, "exclude each other"),
        (
            [USER, {"role": "assistant", "content": None}],
            {"continue_final_message": True, "add_generation_prompt": False},
            "no content",
        ),
    ],
)
def test_arguments_that_make_no_sense(
    messages: list[dict[str, Any]], options: dict[str, Any], match: str
) -> None:
    with pytest.raises(RequestError, match=match):
        rendered(SMOLLM2, messages, **options)


def test_a_template_that_drops_the_message_can_not_continue_it() -> None:
    with pytest.raises(RequestError, match="leaves out the final message"):
        rendered("fixed", [USER], continue_final_message=True, add_generation_prompt=False)


def test_the_current_date() -> None:
    text = rendered("{{ strftime_now('%Y') }}", [USER])
    assert len(text) == 4
    assert text.isdigit()


def test_source_is_kept() -> None:
    assert ChatTemplate("x", None, None).source == "x"
