"""The Jinja environment that chat templates are written for.

The conventions are those of Hugging Face ``transformers``: ``trim_blocks`` and ``lstrip_blocks``,
loop controls, ``raise_exception``, ``strftime_now``, ``tojson`` without HTML escapes, and
``{% generation %}`` blocks. The environment is a sandbox with limits.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.utils import Namespace

from headway.errors import ModelError
from headway.text.template_limits import LimitedEnvironment, TemplateLimits, limited


class RaisedByTemplateError(TemplateError):
    """The template called ``raise_exception``: the conversation is not one it supports."""


class _GenerationBlock(Extension):
    """``{% generation %}`` marks what an assistant wrote, which matters for training only."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it an attribute of instances

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class _PublicNamespace(Namespace):
    """A namespace that can't be used to reach into the interpreter."""

    def __init__(*args: Any, **options: Any) -> None:  # `self` must stay free as a keyword
        attributes = dict(*args[1:], **options)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace can't have the attribute {name!r}")


def compiled(source: str, limits: TemplateLimits) -> Template:
    """Compile a chat template.

    Raises:
        ModelError: the source is not a valid template.
    """
    environment = LimitedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    del environment.globals["lipsum"]  # makes text of any length
    environment.add_filter("tojson", _tojson)
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=_strftime_now,
        namespace=_PublicNamespace,
        dict=_new_dict,
    )
    try:
        with limited(limits):
            return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ModelError(f"chat template, line {error.lineno}: {error.message}") from None
    except (TemplateError, RecursionError) as error:
        raise ModelError(f"the chat template can't be compiled: {error}") from error


def _raise_exception(message: object) -> NoReturn:
    raise RaisedByTemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _new_dict(*args: Any, **items: Any) -> dict[Any, Any]:
    return dict(*args, **items)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
