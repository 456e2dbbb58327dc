"""Settings from a file, the environment and flags; the later of these wins.

Each value keeps its origin, and each complaint names it: which source, which key, which value, and
what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.config.contradiction import ContradictionError
from headway.config.declare import Setting
from headway.config.doubts import doubts
from headway.config.file import Given, Origin, from_file, nearest
from headway.config.protect import Facts, additions, objections, shown
from headway.config.settings import SECTIONS, Settings, all_settings
from headway.config.traffic import TABLES, table_settings
from headway.config.values import accept, parse
from headway.errors import ConfigError

CONFIG_VARIABLE = "HEADWAY_CONFIG"
CACHE_VARIABLE = "HEADWAY_CACHE"  # where downloaded models lie; read by headway.models
TRACES_VARIABLE = "HEADWAY_TRACES"  # where recorded workloads lie; read by benchmarks and tests
_PREFIX = "HEADWAY_"

DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective settings, and the origin of each by its key (``scheduler.max_num_seqs``).

    ``warnings`` say which settings work against ``scheduler.protect``, or have no effect beside
    the others; one line each.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Values:
    """What the sources gave so far: values of sections and tables by key, and all origins."""

    sections: dict[str, object] = field(default_factory=dict)
    tables: dict[str, dict[str, dict[str, object]]] = field(
        default_factory=lambda: {kind: {} for kind in TABLES}
    )
    origins: dict[str, Origin] = field(
        default_factory=lambda: {setting.key: DEFAULT for setting in all_settings()}
    )

    def take(self, given: Given) -> None:
        """Take one value over whatever an earlier source gave."""
        setting = given.setting
        value = _checked(setting, given.raw, given.origin)
        self.origins[setting.key] = given.origin
        kind, _, name = setting.section.partition(".")
        if name:
            self.tables[kind][name][setting.name] = value
        else:
            self.sections[setting.key] = value

    def open_table(self, kind: str, name: str) -> None:
        """Note that there is a table, even if nothing stands in it."""
        self.tables[kind][name] = {}
        for setting in table_settings(kind, name):
            self.origins.setdefault(setting.key, DEFAULT)

    def where(self, keys: Iterable[str]) -> str:
        """Say where each of these values comes from."""
        return "; ".join(f"{key} from {self.origins[key]}" for key in keys)

    @property
    def facts(self) -> Facts:
        """What ``protect`` looks at."""
        return self.sections, self.tables["classes"]


def load_settings(
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Merge all sources over the defaults, and those over what ``scheduler.protect`` sets.

    Args:
        file: a TOML file; without it the one that ``HEADWAY_CONFIG`` names, if any.
        environ: the environment; only names that begin with ``HEADWAY_`` are looked at.
        flags: values by key. Texts are parsed, other values are checked as they are.

    Raises:
        ConfigError: a key is unknown, or a value is not allowed.
    """
    environ = environ or {}
    chosen = file or _config_variable(environ)
    values = _Values()
    if chosen:
        content = from_file(Path(chosen))
        for kind, name in content.tables:
            values.open_table(kind, name)
        for given in content.values:
            values.take(given)
    for given in (*_from_environment(environ), *_from_flags(flags or {})):
        values.take(given)
    warnings = list(_protect(values))
    settings = _build(values)
    warnings += [f"{message} [{values.where(keys)}]" for message, keys in doubts(settings)]
    return Loaded(settings, values.origins, tuple(warnings))


def _config_variable(environ: Mapping[str, str]) -> str | None:
    path = environ.get(CONFIG_VARIABLE)
    if path == "":
        raise ConfigError(f"{CONFIG_VARIABLE} is empty; name a file, or unset it")
    return path


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    known = {setting.variable: setting for setting in all_settings()}
    reserved = (CONFIG_VARIABLE, CACHE_VARIABLE, TRACES_VARIABLE)
    for name, text in sorted(environ.items()):
        if not name.startswith(_PREFIX) or name in reserved:
            continue
        if name not in known:
            hint = _only_in_file(name) or nearest(name, (*known, *reserved))
            raise ConfigError(f"unknown environment variable {name}{hint}")
        if not text.strip():
            raise ConfigError(f"environment variable {name} is empty; give a value, or unset it")
        yield Given(known[name], text, Origin("environment", name))


def _only_in_file(name: str) -> str:
    kinds = [kind for kind in TABLES if name.startswith(f"{_PREFIX}{kind.upper()}")]
    return f": {kinds[0]} can only be set in the file" if kinds else ""


def _from_flags(flags: Mapping[str, object]) -> Iterator[Given]:
    known = {setting.key: setting for setting in all_settings()}
    for key, value in flags.items():
        if key not in known:
            raise ConfigError(f"unknown setting {key}{nearest(key, known)}")
        yield Given(known[key], value, Origin("flag", known[key].flag))


def _checked(setting: Setting, raw: object, origin: Origin) -> object:
    from_text = isinstance(raw, str) and origin.kind != "file"
    try:
        return parse(setting.rule, str(raw)) if from_text else accept(setting.rule, raw)
    except ValueError as error:
        is_toml = origin.kind == "file" and isinstance(raw, bool)
        word = shown(raw) if is_toml else repr(raw)
        what = "" if setting.secret else f" = {word}"
        raise ConfigError(f"{setting.key}{what} ({origin}): {error}") from None


def _protect(values: _Values) -> Iterator[str]:
    """Set what the goal sets, and yield a warning for each value that works against it."""
    goal: Any = values.sections.get("scheduler.protect")
    if goal is None:
        return
    for advice, flaw in objections(goal, values.facts):
        value = values.sections[advice.key]
        remedy = "unset it" + ("" if advice.sets is None else f" for {shown(advice.sets)}")
        yield (
            f'scheduler.protect = "{goal}", but {advice.key} = {shown(value)} '
            f"({values.origins[advice.key]}) {flaw}: {advice.why}; {remedy}"
        )
    for key, value in list(additions(goal, values.facts)):
        values.sections[key] = value
        values.origins[key] = Origin("protect", goal)


def _build(values: _Values) -> Settings:
    sections: dict[str, Any] = {name: {} for name in SECTIONS}
    for key, value in values.sections.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    tables: dict[str, Any] = values.tables
    try:
        made: dict[str, Any] = {name: SECTIONS[name](**table) for name, table in sections.items()}
        for kind, named in tables.items():
            made[kind] = {name: TABLES[kind](**table) for name, table in named.items()}
        return Settings(**made)
    except ContradictionError as error:
        raise ConfigError(f"{error} [{values.where(error.keys)}]") from None
