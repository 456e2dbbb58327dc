"""Workload files: TOML with ``[[streams]]``, and targets by class under ``[classes.NAME]``.

::

    duration_s = 60

    [classes.interactive]
    ttft_ms = 500
    tpot_ms = 80

    [[streams]]
    class = "interactive"
    request_rate = 4
    prompt_tokens = "lognormal:200:0.8:1000"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headway.workload.errors import WorkloadError
from headway.workload.spec import Key, Stream, Targets, WorkloadSpec, stream_keys

_TOP = ("duration_s", "seed", "classes", "streams")
#: key of a class → field of its targets
_TARGETS = {"ttft_ms": "ttft_s", "tpot_ms": "tpot_s", "e2el_ms": "e2el_s"}


def read_spec(path: Path) -> WorkloadSpec:
    """Read a workload file. A relative ``path`` of a stream counts from the file's folder.

    Raises:
        WorkloadError: it can't be read, or something in it is unknown, of the wrong type or
            contradictory; the message says where.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return _spec(table, path.parent)
    except OSError as error:
        raise WorkloadError(f"{path} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, WorkloadError) as error:
        raise WorkloadError(f"{path}: {error}") from error


def stream_of(values: Mapping[str, Any], folder: Path | None = None) -> Stream:
    """Make a stream of its keys.

    Raises:
        WorkloadError: a key is unknown, or a value can't be.
    """
    keys = {key.name: key for key in stream_keys()}
    _refuse_strangers(values, keys)
    given = {keys[name].field: _typed(keys[name], value) for name, value in values.items()}
    if folder is not None and "path" in given:
        given["path"] = str(folder / given["path"])
    return Stream(**given)


def _spec(table: Mapping[str, Any], folder: Path) -> WorkloadSpec:
    _refuse_strangers(table, _TOP)
    streams, classes = table.get("streams", []), table.get("classes", {})
    if not isinstance(streams, list) or not all(isinstance(each, dict) for each in streams):
        raise WorkloadError("streams are tables: [[streams]]")
    if not isinstance(classes, dict) or not all(isinstance(c, dict) for c in classes.values()):
        raise WorkloadError("classes are tables: [classes.NAME]")
    duration_s, seed = table.get("duration_s"), table.get("seed", 0)
    if duration_s is not None:
        duration_s = _number("duration_s", duration_s)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise WorkloadError(f"seed must be a whole number, not {seed!r}")
    return WorkloadSpec(
        streams=tuple(_numbered(number, each, folder) for number, each in enumerate(streams, 1)),
        duration_s=duration_s,
        seed=seed,
        targets={name: _targets(name, each) for name, each in classes.items()},
    )


def _numbered(number: int, values: Mapping[str, Any], folder: Path) -> Stream:
    try:
        return stream_of(values, folder)
    except WorkloadError as error:
        raise WorkloadError(f"stream {number}: {error}") from error


def _targets(name: str, values: Mapping[str, Any]) -> Targets:
    try:
        _refuse_strangers(values, _TARGETS)
        made = {_TARGETS[key]: _number(key, value) / 1e3 for key, value in values.items()}
        if any(not value > 0 for value in made.values()):
            raise WorkloadError("targets must be above 0")
    except WorkloadError as error:
        raise WorkloadError(f"class {name}: {error}") from error
    return Targets(**made)


def _refuse_strangers(values: Mapping[str, Any], known: Iterable[str]) -> None:
    names = list(known)
    for name in values:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
            raise WorkloadError(f"unknown key {name} ({hint})")


def _typed(key: Key, value: Any) -> Any:
    """Return the value as the key's kind; lengths may be bare numbers."""
    if key.kind is float:
        return _number(key.name, value)
    if key.kind is int and (not isinstance(value, int) or isinstance(value, bool)):
        raise WorkloadError(f"{key.name} must be a whole number, not {value!r}")
    is_length = key.name in ("prompt_tokens", "output_tokens") and type(value) is int
    if key.kind is str and not isinstance(value, str) and not is_length:
        raise WorkloadError(f"{key.name} must be a text, not {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise WorkloadError(f"{name} must be a number, not {value!r}")
    return float(value)
