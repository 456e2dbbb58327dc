"""Renders a conversation to the prompt that a model was trained on, with the model's own template.

What comes from outside (messages, tools, further variables) meets a program that came with the
model, so every way in which that program can fail becomes an error of the one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError

from headway.errors import RequestError
from headway.text.chat_messages import ContentForms, Message, prepared_messages
from headway.text.template_environment import RaisedByTemplateError, compiled
from headway.text.template_limits import TemplateLimits, limited

# Marks the end of a message that is to be continued. The last space tells whether the template
# trims its messages.
_CONTINUE_HERE = "[[CONTINUE-THE-FINAL-MESSAGE-HERE]] "
_PROBES = ("first probe", "second probe")
_OWN_VARIABLES = frozenset({"messages", "tools", "documents", "add_generation_prompt"})

# What the expressions of a template raise when they meet data that they weren't written for.
_EXPRESSION_ERRORS = (
    TemplateError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


class ChatTemplate:
    """The chat template of a model, compiled. Immutable, and safe to use from several threads.

    Args:
        source: Jinja source, None if the model has no template.
        bos_token: text of the token that begins a text, which templates write themselves.
        eos_token: likewise for the end.
        limits: what one rendering may use.

    Raises:
        ModelError: the source is not a valid template.
    """

    def __init__(
        self,
        source: str | None,
        bos_token: str | None,
        eos_token: str | None,
        limits: TemplateLimits | None = None,
    ) -> None:
        self.source = source
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._tokens = {name: token for name, token in tokens.items() if token is not None}
        self._limits = limits or TemplateLimits()
        self._template = None if source is None else compiled(source, self._limits)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for a conversation. It has all special tokens, so encode it without framing.

        Args:
            messages: as in the OpenAI API; content is a string, null or a list of text parts.
            tools: as in the OpenAI API.
            add_generation_prompt: end with what introduces an answer.
            continue_final_message: end inside the last message, so that the model goes on with it.
            template_kwargs: more variables for the template.

        Raises:
            RequestError: there is no template (``chat_template_missing``), the template refuses
                the conversation or fails on it (``chat_template_error``), or the arguments
                contradict each other.
        """
        extra = dict(template_kwargs or {})
        _check_arguments(messages, extra, add_generation_prompt, continue_final_message)
        prepared = prepared_messages(messages, self._forms)
        if continue_final_message:
            _mark_end(prepared[-1])
        variables = {
            **self._tokens,
            "documents": None,
            **extra,
            "messages": prepared,
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._rendered(variables)
        return _cut_at_mark(text) if continue_final_message else text

    def _rendered(self, variables: Mapping[str, Any]) -> str:
        if self._template is None:
            message = "the model has no chat template; use the completions API or configure one"
            raise RequestError(message, param="messages", code="chat_template_missing")
        pieces: list[str] = []
        num_chars = 0
        try:
            with limited(self._limits):
                for piece in self._template.generate(variables):
                    pieces.append(piece)
                    num_chars += len(piece)
                    if num_chars > self._limits.max_chars:
                        raise _failure(f"it writes more than {self._limits.max_chars} characters")
        except RaisedByTemplateError as error:
            raise _error(str(error)) from error
        except _EXPRESSION_ERRORS as error:
            raise _failure(str(error)) from error
        return "".join(pieces)

    @cached_property
    def _forms(self) -> ContentForms:
        """Found by trying: text is shown as it is, a list of parts without its punctuation."""
        text = self._probe(_PROBES[0])
        parts = self._probe([{"type": "text", "text": probe} for probe in _PROBES])
        renders_parts = all(probe in parts for probe in _PROBES) and not (
            "'text'" in parts or '"text"' in parts
        )
        return ContentForms(text=_PROBES[0] in text or not renders_parts, parts=renders_parts)

    def _probe(self, content: Any) -> str:
        messages = [{"role": "user", "content": content}]
        variables = {"messages": messages, "tools": None, "add_generation_prompt": False}
        try:
            return self._rendered({**self._tokens, "documents": None, **variables})
        except RequestError:
            return ""


def load_chat_template(
    source: str | None, bos_token: str | None, eos_token: str | None
) -> ChatTemplate:
    """Compile the chat template of a model; without one, rendering is refused.

    Raises:
        ModelError: the source is not a valid template.
    """
    return ChatTemplate(source, bos_token, eos_token)


def _check_arguments(
    messages: Sequence[Mapping[str, Any]],
    extra: Mapping[str, Any],
    add_generation_prompt: bool,
    continue_final_message: bool,
) -> None:
    taken = _OWN_VARIABLES.intersection(extra) - {"documents"}
    if taken:
        message = f"chat_template_kwargs can't set {min(taken)!r}, which has a field of its own"
        raise RequestError(message, param="chat_template_kwargs", code="invalid_value")
    if not messages:
        raise RequestError("messages is empty", param="messages", code="invalid_value")
    if continue_final_message and add_generation_prompt:
        message = "continue_final_message and add_generation_prompt exclude each other"
        raise RequestError(message, param="continue_final_message", code="invalid_value")
    if continue_final_message and messages[-1].get("content") in (None, []):
        message = "the final message has no content that could be continued"
        raise RequestError(message, param="continue_final_message", code="invalid_value")


def _mark_end(message: Message) -> None:
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + _CONTINUE_HERE
    else:
        content[-1]["text"] = content[-1].get("text", "") + _CONTINUE_HERE


def _cut_at_mark(text: str) -> str:
    end = text.rfind(_CONTINUE_HERE.rstrip())
    if end < 0:
        raise _failure("it leaves out the final message, so that can't be continued")
    trims = text[end : end + len(_CONTINUE_HERE)] != _CONTINUE_HERE
    return text[:end].rstrip() if trims else text[:end]


def _failure(reason: str) -> RequestError:
    return _error(f"the chat template fails on these messages: {reason}")


def _error(message: str) -> RequestError:
    return RequestError(message, param="messages", code="chat_template_error")
