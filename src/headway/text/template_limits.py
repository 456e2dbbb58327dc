"""Keeps a chat template from running or growing without end.

A template is a small program that came with a model. Jinja's sandbox keeps it away from the
process; this keeps it from using it up:

- Each turn of a loop and each call is a *step*. Loops are found in the parsed template, which is
  rewritten so that they take their items through a counter, nested and recursive ones included;
  the sandbox already hands every call to the environment. Steps are limited, and after every few of
  them so is the time.
- Everything that makes text longer is measured before or as it happens: output, captured blocks,
  ``~``, ``+``, ``*``, ``%``, ``**``, and the arguments and results of filters and methods.

What one step can do is bounded by the sizes, so a limit is noticed soon after it is passed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_STEPS_BETWEEN_CLOCK_READS = 256
_MAX_INTEGER_BITS = 4096
_MAX_ARGUMENT = 100_000  # of a filter or a string method: widths, counts
_WIDE_PERCENT_FIELD = re.compile(r"%(\([^)]*\))?[^a-zA-Z%]*(\d{6,}|\*)")
_WIDE_BRACE_FIELD = re.compile(r"\{[^{}]*(\d{6,}|\{)")  # or one whose width is an argument

# Names that can't be written in a template.
_LOOP, _CONCATENATE = "headway loop", "headway concatenate"


class TemplateLimitError(TemplateRuntimeError):
    """A template ran too long or wrote too much."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What one rendering may use.

    Attributes:
        max_steps: loop turns and calls. Templates take a few dozen for each message.
        max_chars: length of the output, and of any value on the way.
        max_seconds: time; a safety net, for under load a good template is slow as well.
        clock: reads a monotonic clock, in seconds.
    """

    max_steps: int = 500_000
    max_chars: int = 8_000_000
    max_seconds: float = 5.0
    clock: Callable[[], float] = time.monotonic


class _Meter:
    """Counts what one rendering uses."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._steps = 0
        self._deadline = limits.clock() + limits.max_seconds

    def step(self) -> None:
        self._steps += 1
        if self._steps > self._limits.max_steps:
            raise TemplateLimitError(f"it takes more than {self._limits.max_steps} steps")
        if self._steps % _STEPS_BETWEEN_CLOCK_READS == 0 and (
            self._limits.clock() > self._deadline
        ):
            raise TemplateLimitError(f"it takes more than {self._limits.max_seconds:g} s")

    def size(self, size: int) -> None:
        if size > self._limits.max_chars:
            raise TemplateLimitError(f"it makes a value longer than {self._limits.max_chars}")


_current: ContextVar[_Meter] = ContextVar("headway_template_meter")


@contextmanager
def limited(limits: TemplateLimits) -> Iterator[None]:
    """Apply ``limits`` to what the templates of ``LimitedEnvironment`` do in this block."""
    token = _current.set(_Meter(limits))
    try:
        yield
    finally:
        _current.reset(token)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose templates only run inside ``limited`` and keep to its limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.code_generator_class = _MeteringCodeGenerator
        self.filters = {name: _measured(name, f) for name, f in self.filters.items()}
        self.filters[_LOOP] = _counted
        self.filters[_CONCATENATE] = _concatenated

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Make ``function`` known to templates, its arguments and result measured."""
        self.filters[name] = _measured(name, function)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join the pieces of a captured block."""
        return _joined(list(parts))

    def call(self, context: Context, function: Any, /, *args: Any, **options: Any) -> Any:
        """Call ``function`` for a template."""
        _current.get().step()
        receiver = getattr(function, "__self__", None)
        if isinstance(receiver, str):
            _check_growth(function.__name__, receiver, (*args, *options.values()))
        result = super().call(context, function, *args, **options)
        return _checked(result)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Guard ``str.format`` and ``str.format_map``."""
        safe_format = super().wrap_str_format(value)
        if safe_format is not None:
            _check_brace_format(value.__self__)
        return safe_format

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right`` for a template."""
        _check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)


class _CountedItems:
    """Items of a loop; a step is counted for each. It has a length if they have."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        meter = _current.get()
        for item in self._items:
            meter.step()
            yield item

    def __len__(self) -> int:
        return len(self._items)


@pass_context
def _counted(_: Context, items: Any) -> _CountedItems:
    return _CountedItems(items)


@pass_context
def _concatenated(_: Context, parts: Iterable[Any]) -> str:
    return _joined([str(part) for part in parts])


class _MeteringTransformer(NodeTransformer):
    """Sends loops and ``~`` through the filters that measure them."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _LOOP, node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCATENATE, node.lineno)


class _MeteringCodeGenerator(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        _MeteringTransformer().visit(node)
        node.set_environment(self.environment)
        super().visit_Template(node, frame)


def _filtered(node: nodes.Node, name: str, lineno: int) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=lineno)


def _measured(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter with its arguments checked before and its result checked after."""
    subject = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def measured(*args: Any, **options: Any) -> Any:
        _check_growth(name, args[subject], (*args[subject + 1 :], *options.values()))
        return _checked(function(*args, **options))

    return measured


def _checked(result: Any) -> Any:
    if isinstance(result, (str, list, tuple)):
        _current.get().size(len(result))
    return result


def _joined(parts: list[str]) -> str:
    _current.get().size(sum(map(len, parts)))
    return "".join(parts)


def _check_growth(name: str, subject: Any, args: tuple[Any, ...]) -> None:
    """Refuse a filter or string method whose result is going to be huge."""
    if any(isinstance(value, int) and value > _MAX_ARGUMENT for value in args):
        raise TemplateLimitError(f"{name} has an argument above {_MAX_ARGUMENT}")
    if name == "format":
        _check_percent_format(str(subject))
    elif name == "replace" and len(args) > 1:
        old, new = str(args[0]), str(args[1])
        text = str(subject)
        _current.get().size(len(text) + text.count(old) * len(new))
    elif name == "join":
        _check_join(subject, args)


def _check_join(subject: Any, args: tuple[Any, ...]) -> None:
    """Both ``separator.join(items)`` and ``items | join(separator)``."""
    items, separator = (args[0], subject) if isinstance(subject, str) and args else (subject, "")
    if isinstance(items, (list, tuple)):
        between = len(separator) or sum(len(a) for a in args if isinstance(a, str))
        known = sum(len(item) for item in items if isinstance(item, str))
        _current.get().size(known + between * len(items))


def _check_percent_format(template: str) -> None:
    if _WIDE_PERCENT_FIELD.search(template.replace("%%", "")):
        raise TemplateLimitError("a format string asks for a very wide field")


def _check_brace_format(template: str) -> None:
    if _WIDE_BRACE_FIELD.search(template.replace("{{", "").replace("}}", "")):
        raise TemplateLimitError("a format string asks for a very wide field")


def _check_operator(operator: str, left: Any, right: Any) -> None:
    if operator == "%" and isinstance(left, str):
        _check_percent_format(left)
    elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
        _current.get().size(len(left) + len(right))
    elif operator == "*":
        _check_product(left, right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 0))


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    elif isinstance(left, Sized) and isinstance(right, int):
        _current.get().size(len(left) * right)
    elif isinstance(right, Sized) and isinstance(left, int):
        _current.get().size(len(right) * left)


def _check_bits(bits: int) -> None:
    if bits > _MAX_INTEGER_BITS:
        raise TemplateLimitError("it makes a huge number")
