"""Brings messages of the OpenAI API into the shape that chat templates expect.

Templates are written against what the model's authors passed in, which differs from the API in
three places: content may have to be a string or a list of parts, null content is a string unless
the message calls tools, and the arguments of a tool call are an object and not JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import RequestError

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContentForms:
    """Which forms of content a template can render."""

    text: bool = True
    parts: bool = False


def prepared_messages(messages: Sequence[Mapping[str, Any]], forms: ContentForms) -> list[Message]:
    """Copies of ``messages`` in the shape that a template with ``forms`` takes.

    Raises:
        RequestError: the arguments of a tool call are no JSON object.
    """
    return [_prepared(dict(message), index, forms) for index, message in enumerate(messages)]


def text_of_parts(parts: Sequence[Mapping[str, Any]]) -> str:
    """The text of a list of text parts, one a line."""
    return "\n".join(str(part.get("text", "")) for part in parts)


def _prepared(message: Message, index: int, forms: ContentForms) -> Message:
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [
            _with_object_arguments(call, f"messages[{index}].tool_calls[{position}]")
            for position, call in enumerate(calls)
        ]
    if "content" in message or not calls:
        message["content"] = _content(message.get("content"), bool(calls), forms)
    return message


def _content(content: Any, has_calls: bool, forms: ContentForms) -> Any:
    if content is None:
        if has_calls:
            return None
        content = ""
    if isinstance(content, str):
        as_parts = forms.parts and not forms.text
        return [{"type": "text", "text": content}] if as_parts else content
    return [dict(part) for part in content] if forms.parts else text_of_parts(content)


def _with_object_arguments(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        function["arguments"] = _parsed_arguments(arguments, where)
    return {**call, "function": function}


def _parsed_arguments(arguments: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        message = f"{where}.function.arguments is not a JSON object"
        raise RequestError(message, param="messages", code="invalid_tool_call")
    return value
