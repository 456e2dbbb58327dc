"""The settings file: TOML, with sections, and named tables of classes and tenants."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headway.config.declare import Setting
from headway.config.settings import SECTIONS, all_settings
from headway.config.traffic import TABLES, table_settings
from headway.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from, and its name there.

    ``kind`` is ``default``, ``file``, ``environment``, ``flag``, ``protect`` for what
    ``scheduler.protect`` set, or ``plan`` for what ``headway plan`` chose.
    """

    kind: str
    name: str = ""

    def __str__(self) -> str:
        """As in messages: ``flag --port``."""
        if self.kind == "protect":
            return f"protect = {self.name}"
        if self.kind == "plan" and self.name:
            return f"plan: {self.name}"
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Given:
    """A value as a source gives it, not yet checked."""

    setting: Setting
    raw: object
    origin: Origin


@dataclass(frozen=True, slots=True)
class Content:
    """What stands in a file: the named tables as (kind, name), and all values."""

    tables: tuple[tuple[str, str], ...]
    values: tuple[Given, ...]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)``, or nothing if no known word is or contains one like it."""
    words = list(known)
    matches = get_close_matches(word, words, n=1, cutoff=0.6)
    matches = matches or [each for each in words if word in each.split("_")]
    return f" (did you mean {matches[0]}?)" if matches else ""


def from_file(path: Path) -> Content:
    """Read a settings file.

    Raises:
        ConfigError: the file can't be read, or a key in it is unknown.
    """
    tables: list[tuple[str, str]] = []
    values: list[Given] = []
    for section, table in _read_toml(path).items():
        if section not in SECTIONS and section not in TABLES:
            raise ConfigError(f"{path}: {_unknown_section(section, table)}")
        if not isinstance(table, dict):
            shown = section if section in SECTIONS else f"{section}.NAME"
            raise ConfigError(f"{path}: {section} must be a table: [{shown}]")
        if section in SECTIONS:
            values += _section(path, section, table)
            continue
        for name, inner in table.items():
            values += _table(path, section, name, inner)
            tables.append((section, name))
    return Content(tuple(tables), tuple(values))


def _section(path: Path, section: str, table: dict[str, Any]) -> Iterator[Given]:
    known = {found.name: found for found in all_settings() if found.section == section}
    origin = Origin("file", str(path))
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{path}: unknown setting {section}.{name}{_hint(section, name)}")
        yield Given(known[name], value, origin)


def _table(path: Path, kind: str, name: str, table: object) -> Iterator[Given]:
    if not isinstance(table, dict):
        raise ConfigError(
            f"{path}: {kind}.{name} must be a table: settings belong under [{kind}.NAME]"
        )
    known = {found.name: found for found in table_settings(kind, name)}
    origin = Origin("file", str(path))
    for key, value in table.items():
        if key not in known:
            hint = nearest(key, known)
            raise ConfigError(f"{path}: unknown setting {kind}.{name}.{key}{hint}")
        yield Given(known[key], value, origin)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except ValueError as error:  # of tomllib, and of a path that no system call takes
        raise ConfigError(f"{path}: {error}") from None


def _unknown_section(name: str, value: object) -> str:
    homes = [setting.section for setting in all_settings() if setting.name == name]
    if homes and not isinstance(value, dict):
        return f"{name} belongs in a section: " + " or ".join(f"[{home}]" for home in homes)
    what = "section" if isinstance(value, dict) else "setting"
    names = [*SECTIONS, *TABLES, *(setting.name for setting in all_settings())]
    return f"unknown {what} {name}{nearest(name, names)}"


def _hint(section: str, name: str) -> str:
    """The nearest setting: of the same name elsewhere, of this section, or of any."""
    settings = all_settings()
    same = [setting.key for setting in settings if setting.name == name]
    if same:
        return f" (did you mean {same[0]}?)"
    here = [setting.name for setting in settings if setting.section == section]
    close = get_close_matches(name, here, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {section}.{close[0]}?)"
    return nearest(f"{section}.{name}", (setting.key for setting in settings))
