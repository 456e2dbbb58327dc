"""Settings as plain values and as a TOML file that ``--config`` takes back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from headway.config.declare import Setting, settings_of
from headway.config.load import Loaded
from headway.config.settings import SECTIONS, Settings
from headway.config.traffic import TABLES, table_settings

HIDDEN = "(not shown)"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def value_of(settings: Settings, key: str) -> object:
    """Return the value of ``section.name``, or of ``classes.NAME.name``."""
    section, _, name = key.partition(".")
    if section in TABLES:
        table, _, name = name.rpartition(".")
        return getattr(getattr(settings, section)[table], name)
    return getattr(getattr(settings, section), name)


def hidden_keys(settings: Settings) -> list[str]:
    """Return the secret settings that have a value."""
    sections = [settings_of(section) for section in SECTIONS.values()]
    tables = [table_settings(kind, name) for kind in TABLES for name in getattr(settings, kind)]
    every = [setting for group in (*sections, *tables) for setting in group]
    return [each.key for each in every if each.secret and value_of(settings, each.key)]


def to_toml(loaded: Loaded, *, without_defaults: bool = False) -> str:
    """Write all settings as TOML; what is unset or secret is a comment.

    ``without_defaults`` leaves out what nobody has set, and sections of which nothing is left.
    """
    groups = [(name, settings_of(section)) for name, section in SECTIONS.items()]
    tables = [
        (f"{kind}.{_key(name)}", table_settings(kind, name))
        for kind in TABLES
        for name in getattr(loaded.settings, kind)
    ]
    if without_defaults:
        groups = [(name, _set(loaded, settings)) for name, settings in groups]
        groups = [group for group in groups if group[1]]
        tables = [(name, _set(loaded, settings)) for name, settings in tables]
    parts = [_lines(loaded, name, settings) for name, settings in (*groups, *tables)]
    return "\n".join("\n".join(lines) + "\n" for lines in parts)


def _set(loaded: Loaded, settings: Iterable[Setting]) -> tuple[Setting, ...]:
    return tuple(each for each in settings if loaded.origins[each.key].kind != "default")


def _lines(loaded: Loaded, header: str, settings: Iterable[Setting]) -> Iterator[str]:
    yield f"[{header}]"
    for setting in settings:
        value = value_of(loaded.settings, setting.key)
        origin = loaded.origins[setting.key]
        source = "" if origin.kind == "default" else f"  # {_one_line(str(origin))}"
        if setting.secret and value:
            yield f"# {setting.name} = {HIDDEN}: add it, or it is not set{source}"
        elif value is None and setting.default is None:
            yield f"# {setting.name} is unset{source}"
        else:
            yield f"{setting.name} = {_toml(value)}{source}"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _one_line(text: str) -> str:
    """Keep a comment a comment, whatever stands in a file's name."""
    return text if text.isprintable() else repr(text)


def _toml(value: object) -> str:
    """JSON writes the values of the kinds that settings have as TOML does, but for two."""
    if value is None:
        return '"none"'
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
