"""``headway config``: the effective settings, and where each value comes from."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from headway.cli.options import add_settings, load
from headway.cli.output import print_json, print_rows, print_warnings
from headway.config import (
    HIDDEN,
    SECTIONS,
    TABLES,
    Loaded,
    Setting,
    hidden_keys,
    settings_of,
    table_settings,
    to_toml,
    value_of,
)
from headway.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--toml", action="store_true", help="print a file that --config takes back")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Print the settings in the chosen form; warnings go to standard error, or into the JSON."""
    if args.json and args.toml:
        raise UsageError("--json and --toml exclude each other")
    loaded = load(args)
    if args.json:
        print_json(_as_json(loaded))
        return 0
    if args.toml:
        print(to_toml(loaded), end="")
        print_warnings(_lost_keys(loaded))
    else:
        _print(loaded)
    print_warnings(loaded.warnings)
    return 0


def _lost_keys(loaded: Loaded) -> Iterator[str]:
    """Yield the warning that a server with the printed file would take requests of anybody."""
    hidden = hidden_keys(loaded.settings)
    if hidden:
        yield f"API keys are not printed; add them to the file: {', '.join(hidden)}"


def _as_json(loaded: Loaded) -> dict[str, object]:
    sections = {name: _values(loaded, settings_of(each)) for name, each in SECTIONS.items()}
    tables = {
        kind: {name: _values(loaded, table_settings(kind, name)) for name in _names(loaded, kind)}
        for kind in TABLES
    }
    return {"settings": sections, **tables, "warnings": list(loaded.warnings)}


def _values(loaded: Loaded, settings: Iterable[Setting]) -> dict[str, dict[str, object]]:
    result = {}
    for setting in settings:
        origin = loaded.origins[setting.key]
        value = _shown(loaded, setting)
        result[setting.name] = {"value": value, "origin": origin.kind, "source": origin.name}
    return result


def _print(loaded: Loaded) -> None:
    for name, section in SECTIONS.items():
        _print_table(loaded, name, settings_of(section))
    for kind in TABLES:
        for name in _names(loaded, kind):
            _print_table(loaded, f"{kind}.{name}", table_settings(kind, name))


def _print_table(loaded: Loaded, header: str, settings: Iterable[Setting]) -> None:
    print(f"[{header}]")
    print_rows(
        (
            (setting.name, _text(_shown(loaded, setting)), str(loaded.origins[setting.key]))
            for setting in settings
        ),
        indent="  ",
    )


def _names(loaded: Loaded, kind: str) -> Iterable[str]:
    names: Iterable[str] = getattr(loaded.settings, kind)
    return names


def _shown(loaded: Loaded, setting: Setting) -> object:
    if setting.key == "server.default_class":
        return loaded.settings.default_class  # the one that it comes to, where it is unset
    value = value_of(loaded.settings, setting.key)
    return HIDDEN if setting.secret and value else value


def _text(value: object) -> str:
    if value in (None, ()):
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
