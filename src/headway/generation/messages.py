"""Checks the shape of a conversation that comes from Python, where no parser has done so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from headway.errors import RequestError


def check_messages(messages: object) -> None:
    """Refuse what is no list of messages with a role and with text.

    Raises:
        RequestError: says which message is wrong, and how.
    """
    if not isinstance(messages, list | tuple):
        _refuse(f"must be a list of messages, not {type(messages).__name__}.")
    for index, message in enumerate(messages):
        _check_message(f"message {index}", message)


def _check_message(where: str, message: object) -> None:
    if not isinstance(message, Mapping):
        _refuse(f"{where} is no mapping with 'role' and 'content'.")
    if not isinstance(message.get("role"), str):
        _refuse(f"{where} has no 'role' that is a string.")
    content: Any = message.get("content")
    if isinstance(content, list | tuple):
        for part in content:
            _check_part(where, part)
    elif content is not None and not isinstance(content, str):
        _refuse(f"{where} has 'content' that is neither a string nor a list of text parts.")


def _check_part(where: str, part: object) -> None:
    match part:
        case {"type": "text", "text": str()}:
            return
    _refuse(f"{where} has a part that is no text: {{'type': 'text', 'text': …}}.")


def _refuse(message: str) -> NoReturn:
    raise RequestError(f"Invalid 'messages': {message}", param="messages", code="invalid_value")
