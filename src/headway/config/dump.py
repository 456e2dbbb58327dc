"""Settings as plain values and as a TOML file that ``--config`` takes back."""

from __future__ import annotations

import json
from collections.abc import Iterator

from headway.config.declare import settings_of
from headway.config.load import Loaded
from headway.config.settings import SECTIONS, Settings

HIDDEN = "(not shown)"


def value_of(settings: Settings, key: str) -> object:
    """Return the value of ``section.name``."""
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)


def to_toml(loaded: Loaded) -> str:
    """Write all settings as TOML; what is unset or secret stands as a comment."""
    return "\n".join("\n".join(_section_lines(loaded, name)) + "\n" for name in SECTIONS)


def _section_lines(loaded: Loaded, name: str) -> Iterator[str]:
    yield f"[{name}]"
    for setting in settings_of(SECTIONS[name]):
        value = value_of(loaded.settings, setting.key)
        origin = loaded.origins[setting.key]
        source = "" if origin.kind == "default" else f"  # {_one_line(str(origin))}"
        if setting.secret and value:
            yield f"# {setting.name} = {HIDDEN}{source}"
        elif value is None and setting.default is None:
            yield f"# {setting.name} is unset{source}"
        else:
            yield f"{setting.name} = {_toml(value)}{source}"


def _one_line(text: str) -> str:
    """Keep a comment a comment, whatever stands in a file's name."""
    return text if text.isprintable() else repr(text)


def _toml(value: object) -> str:
    """JSON writes the values of the kinds that settings have as TOML does, but for two."""
    if value is None:
        return '"none"'
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
