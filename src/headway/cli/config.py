"""``headway config``: the effective settings, and where each value comes from."""

from __future__ import annotations

import argparse

from headway.cli.options import add_settings, load
from headway.cli.output import print_json, print_rows
from headway.config import HIDDEN, SECTIONS, Loaded, Setting, settings_of, to_toml, value_of
from headway.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--toml", action="store_true", help="print a file that --config takes back")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Print the settings in the chosen form."""
    if args.json and args.toml:
        raise UsageError("--json and --toml exclude each other")
    loaded = load(args)
    if args.json:
        print_json({"settings": {name: _as_json(loaded, name) for name in SECTIONS}})
    elif args.toml:
        print(to_toml(loaded), end="")
    else:
        _print(loaded)
    return 0


def _as_json(loaded: Loaded, section: str) -> dict[str, dict[str, object]]:
    result = {}
    for setting in settings_of(SECTIONS[section]):
        origin = loaded.origins[setting.key]
        value = _shown(loaded, setting)
        result[setting.name] = {"value": value, "origin": origin.kind, "source": origin.name}
    return result


def _print(loaded: Loaded) -> None:
    for name, section in SECTIONS.items():
        print(f"[{name}]")
        print_rows(
            (
                (setting.name, _text(_shown(loaded, setting)), str(loaded.origins[setting.key]))
                for setting in settings_of(section)
            ),
            indent="  ",
        )


def _shown(loaded: Loaded, setting: Setting) -> object:
    value = value_of(loaded.settings, setting.key)
    return HIDDEN if setting.secret and value else value


def _text(value: object) -> str:
    if value in (None, ()):
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
