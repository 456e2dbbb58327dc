"""Flags made from the declared settings, and settings made from parsed flags."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Iterable
from typing import Any

from headway.config import SECTIONS, Loaded, Setting, all_settings, load_settings, settings_of
from headway.errors import UsageError

_METAVARS: dict[type, str] = {int: "N", float: "X", str: "TEXT", tuple: "TEXT"}


def add_settings(
    parser: argparse.ArgumentParser,
    sections: Iterable[str] = tuple(SECTIONS),
    without: Container[str] = (),
) -> None:
    """Add ``--config`` and a flag for each setting of the given sections, but for some by key."""
    parser.add_argument(
        "--config", metavar="FILE", help="settings file (TOML); default: $HEADWAY_CONFIG, if set"
    )
    for section in sections:
        group = parser.add_argument_group(f"[{section}]")
        for setting in settings_of(SECTIONS[section]):
            if setting.key not in without:
                _add_flag(group, setting)


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Add the positional MODEL, a short form of ``--model``."""
    parser.add_argument(
        "model_argument", metavar="MODEL", nargs="?", help="what to serve; short for --model MODEL"
    )


def load(args: argparse.Namespace) -> Loaded:
    """Load the settings from file, environment and the parsed flags.

    Raises:
        ConfigError: a setting is unknown or not allowed.
        UsageError: the model is given twice.
    """
    given = vars(args)
    flags = {setting.key: given[setting.key] for setting in all_settings() if setting.key in given}
    model = given.get("model_argument")
    if model is not None:
        if "model.path" in flags:
            raise UsageError("the model is given twice: as MODEL and as --model")
        flags["model.path"] = model
    return load_settings(args.config, os.environ, flags)


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    """The flag's destination is the setting's key, and only given flags appear in the result."""
    kind = setting.rule.kind
    options: dict[str, Any]
    if kind is bool:
        options = {"action": argparse.BooleanOptionalAction}
    else:
        options = {"metavar": _metavar(setting), "action": "append" if kind is tuple else "store"}
    group.add_argument(
        setting.flag,
        dest=setting.key,
        default=argparse.SUPPRESS,
        help=_help(setting).replace("%", "%%"),
        **options,
    )


def _metavar(setting: Setting) -> str:
    choices = setting.rule.choices
    return "{" + ",".join(choices) + "}" if choices else _METAVARS[setting.rule.kind]


def _help(setting: Setting) -> str:
    notes = [setting.unit] if setting.unit else []
    if setting.default not in (None, ()):
        shown = str(setting.default).lower() if setting.rule.kind is bool else setting.default
        notes.append(f"default: {shown}")
    if setting.rule.kind is tuple:
        notes.append("may be repeated")
    return setting.meaning.replace("`", "") + (f" ({'; '.join(notes)})" if notes else "")
