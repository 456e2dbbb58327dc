"""Settings from a file, the environment and flags; the later of these wins.

Each value keeps its origin, and each complaint names it: which source, which key, which value, and
what is allowed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headway.config.declare import Setting
from headway.config.settings import SECTIONS, ContradictionError, Settings, all_settings
from headway.config.values import accept, parse
from headway.errors import ConfigError

CONFIG_VARIABLE = "HEADWAY_CONFIG"
CACHE_VARIABLE = "HEADWAY_CACHE"  # where downloaded models lie; read by headway.models
_PREFIX = "HEADWAY_"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: ``default``, ``file``, ``environment`` or ``flag``, and its name."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        """As in messages: ``flag --port``."""
        return f"{self.kind} {self.name}".rstrip()


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective settings, and the origin of each by its key (``scheduler.max_num_seqs``)."""

    settings: Settings
    origins: Mapping[str, Origin]


def load_settings(
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Merge all sources over the defaults.

    Args:
        file: a TOML file; without it the one that ``HEADWAY_CONFIG`` names, if any.
        environ: the environment; only names that begin with ``HEADWAY_`` are looked at.
        flags: values by key. Texts are parsed, other values are checked as they are.

    Raises:
        ConfigError: a key is unknown, or a value is not allowed.
    """
    environ = environ or {}
    chosen = file or _config_variable(environ)
    values: dict[str, object] = {}
    origins = {setting.key: DEFAULT for setting in all_settings()}
    for setting, raw, origin in (
        *(_from_file(Path(chosen)) if chosen else ()),
        *_from_environment(environ),
        *_from_flags(flags or {}),
    ):
        values[setting.key] = _checked(setting, raw, origin)
        origins[setting.key] = origin
    return Loaded(_build(values, origins), origins)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)``, or nothing if no known word is like this one."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {matches[0]}?)" if matches else ""


def _config_variable(environ: Mapping[str, str]) -> str | None:
    path = environ.get(CONFIG_VARIABLE)
    if path == "":
        raise ConfigError(f"{CONFIG_VARIABLE} is empty; name a file, or unset it")
    return path


def _from_file(path: Path) -> Iterator[tuple[Setting, object, Origin]]:
    origin = Origin("file", str(path))
    known = {(setting.section, setting.name): setting for setting in all_settings()}
    for section, table in _read_toml(path).items():
        if section not in SECTIONS:
            raise ConfigError(f"{path}: {_unknown_section(section, table)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {section} must be a table: [{section}]")
        for name, value in table.items():
            if (section, name) not in known:
                raise ConfigError(f"{path}: unknown setting {section}.{name}{_hint(section, name)}")
            yield known[section, name], value, origin


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
    names = [*SECTIONS, *(setting.name for setting in all_settings())]
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


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Setting, object, Origin]]:
    known = {setting.variable: setting for setting in all_settings()}
    reserved = (CONFIG_VARIABLE, CACHE_VARIABLE)
    for name, text in sorted(environ.items()):
        if not name.startswith(_PREFIX) or name in reserved:
            continue
        if name not in known:
            hint = nearest(name, (*known, *reserved))
            raise ConfigError(f"unknown environment variable {name}{hint}")
        if not text.strip():
            raise ConfigError(f"environment variable {name} is empty; give a value, or unset it")
        yield known[name], text, Origin("environment", name)


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[Setting, object, Origin]]:
    known = {setting.key: setting for setting in all_settings()}
    for key, value in flags.items():
        if key not in known:
            raise ConfigError(f"unknown setting {key}{nearest(key, known)}")
        yield known[key], value, Origin("flag", known[key].flag)


def _checked(setting: Setting, raw: object, origin: Origin) -> object:
    from_text = isinstance(raw, str) and origin.kind != "file"
    try:
        return parse(setting.rule, str(raw)) if from_text else accept(setting.rule, raw)
    except ValueError as error:
        shown = "" if setting.secret else f" = {raw!r}"
        raise ConfigError(f"{setting.key}{shown} ({origin}): {error}") from None


def _build(values: Mapping[str, object], origins: Mapping[str, Origin]) -> Settings:
    sections: dict[str, Any] = {name: {} for name in SECTIONS}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    try:
        made: dict[str, Any] = {name: SECTIONS[name](**table) for name, table in sections.items()}
        return Settings(**made)
    except ContradictionError as error:
        where = "; ".join(f"{key} from {origins[key]}" for key in error.keys)
        raise ConfigError(f"{error} [{where}]") from None
