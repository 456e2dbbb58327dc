"""The values a setting may take: checking typed ones, reading texts, saying what is allowed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_BYTES = re.compile(r"(\d[\d_]*)\s*([KMGT]iB)", re.IGNORECASE)
_BYTE_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is allowed: a type (``tuple`` is a list of texts), None or not, choices, bounds."""

    kind: type
    optional: bool = False
    choices: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    in_bytes: bool = False


def accept(rule: Rule, value: object) -> object:
    """Check a typed value, as from TOML or Python, and return it in the declared type.

    The text ``none`` unsets an optional one, since TOML has no other word for that.

    Raises:
        ValueError: says what is allowed instead.
    """
    if rule.optional and (value is None or _is_none(value)):
        return None
    if rule.kind is tuple:
        return _accept_texts(rule, value)
    if rule.in_bytes and isinstance(value, str):
        value = _parse_scalar(rule, value)
    if rule.kind is float and type(value) is int:
        value = _to_float(rule, value)
    if type(value) is not rule.kind:
        raise ValueError(f"must be {allowed(rule)}")
    if isinstance(value, str):
        return _accept_text(rule, value)
    if isinstance(value, int | float) and not _in_bounds(rule, value):
        raise ValueError(f"must be {allowed(rule)}")
    return value


def parse(rule: Rule, text: str) -> object:
    """Read a value from the text of a variable or flag; ``none`` unsets what can be unset.

    Raises:
        ValueError: says what is allowed instead.
    """
    if rule.optional and _is_none(text):
        return None
    if rule.kind is tuple:
        return accept(rule, () if _is_none(text) else text.split(","))
    return accept(rule, text if rule.kind is str else _parse_scalar(rule, text.strip()))


def allowed(rule: Rule) -> str:
    """Say in words what the rule allows, to follow "must be"."""
    if rule.choices:
        words = _choice_words(rule.choices)
    elif rule.kind is tuple:
        words = "a text or a list of texts, none of them empty"
    elif rule.kind in (int, float):
        words = " ".join(filter(None, (_number_word(rule), _bound_words(rule))))
    else:
        words = {bool: "true or false", str: "a text that is not empty"}[rule.kind]
    return words + (", or none" if rule.optional else "")


def _is_none(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() == "none"


def _accept_texts(rule: Rule, value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, tuple | list):
        raise ValueError(f"must be {allowed(rule)}")
    texts = tuple(item.strip() if isinstance(item, str) else item for item in items)
    for text in texts:
        if not isinstance(text, str) or not text or not _is_unicode(text):
            raise ValueError(f"must be {allowed(rule)}")
    return texts


def _accept_text(rule: Rule, value: str) -> str:
    if not _is_unicode(value):
        raise ValueError("must be valid Unicode")
    if value in rule.planned:
        raise ValueError(f"not supported yet; must be {allowed(rule)}")
    if (rule.choices and value not in rule.choices) or not value.strip():
        raise ValueError(f"must be {allowed(rule)}")
    return value


def _is_unicode(text: str) -> bool:
    """Undecodable bytes of the command line and the environment arrive as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _to_float(rule: Rule, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"must be {allowed(rule)}") from None


def _parse_scalar(rule: Rule, text: str) -> object:
    try:
        if rule.kind is bool:
            return _BOOLEANS[text.lower()]
        if rule.kind is float:
            return float(text)
        amount = _BYTES.fullmatch(text) if rule.in_bytes else None
        return int(amount[1]) * _BYTE_UNITS[amount[2].lower()] if amount else int(text)
    except (KeyError, ValueError):
        raise ValueError(f"must be {allowed(rule)}") from None


def _in_bounds(rule: Rule, value: float) -> bool:
    return (
        (isinstance(value, int) or math.isfinite(value))
        and (rule.at_least is None or value >= rule.at_least)
        and (rule.above is None or value > rule.above)
        and (rule.at_most is None or value <= rule.at_most)
        and (rule.below is None or value < rule.below)
    )


def _choice_words(choices: tuple[str, ...]) -> str:
    quoted = [f'"{choice}"' for choice in choices]
    return quoted[0] if len(quoted) == 1 else "one of " + ", ".join(quoted)


def _number_word(rule: Rule) -> str:
    if rule.in_bytes:
        return 'an integer of bytes (or a text such as "2GiB")'
    return "an integer" if rule.kind is int else "a number"


def _bound_words(rule: Rule) -> str:
    parts = [
        # an integer in full: as a float it would be rounded
        f"{word} {bound}" if isinstance(bound, int) else f"{word} {bound:g}"
        for word, bound in (
            ("of at least", rule.at_least),
            ("above", rule.above),
            ("up to", rule.at_most),
            ("below", rule.below),
        )
        if bound is not None
    ]
    return " and ".join(parts)
