"""Typed reading of untrusted key-value data: ``config.json`` and GGUF metadata.

Every reader here either returns a value of the asked type or raises a :class:`ModelError` that
names the file and the key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import ModelError

_MAX_SHOWN = 60


def shown(value: object) -> str:
    """Return ``value`` on one line and cut to a sane length, for error messages."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def read_bytes(path: Path) -> bytes:
    """Read a small file whole; raises ModelError when it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {error.strerror or error}") from error


def parse_json_object(text: bytes, path: Path) -> dict[str, Any]:
    """Parse ``text``, the content of ``path``; raises ModelError unless it is one JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {shown(str(error))}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: must hold a JSON object, not {type(value).__name__}")
    return value


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that must hold one JSON object."""
    return parse_json_object(read_bytes(path), path)


def read_optional_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object, or return an empty one when the file does not exist."""
    return read_json_object(path) if path.exists() else {}


@dataclass(frozen=True, slots=True)
class Fields:
    """Values by key, from the file ``path``; ``prefix`` is put before each key (GGUF: ``llama.``).

    A key whose value is None counts as absent. An absent key gives ``default``; without a default
    it is an error.
    """

    path: Path
    values: Mapping[str, Any]
    prefix: str = ""

    def get(self, key: str) -> Any:
        """Return the raw value, or None."""
        return self.values.get(self.prefix + key)

    def fail(self, key: str, problem: str) -> ModelError:
        """Return the error to raise about ``key``."""
        return ModelError(f"{self.path}: {self.prefix}{key} {problem}")

    def _required(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise self.fail(key, "is missing")
        return value

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return an integer of at least ``minimum`` that fits 31 bits; 8.0 counts as one."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        value = self._required(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"must be an integer, not {shown(value)}")
        if not minimum <= value < 2**31:
            raise self.fail(key, f"is out of range: {shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number above zero."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, f"must be a number, not {shown(value)}")
        if not 0 < value < 1e300 or not math.isfinite(value):
            raise self.fail(key, f"must be a finite number above zero, not {shown(value)}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"must be true or false, not {shown(value)}")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        value = self._required(key)
        if not isinstance(value, str):
            raise self.fail(key, f"must be a string, not {shown(value)}")
        return value

    def section(self, key: str) -> Fields | None:
        """Return the nested object under ``key``, or None when it is absent or empty."""
        value = self.get(key)
        if value is None or value == {}:
            return None
        if not isinstance(value, dict):
            raise self.fail(key, f"must be an object, not {shown(value)}")
        return Fields(self.path, value)

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """Return one id or a list of them; what is no id (-1 for "none") is left out."""
        value = self.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if any(isinstance(i, bool) or not isinstance(i, int) for i in ids):
            raise self.fail(key, f"must be a token id or a list of them, not {shown(value)}")
        return tuple(i for i in ids if 0 <= i < vocab_size)
