"""The argument parser of one command: argparse with one-line errors that name the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from headway.cli.commands import Command
from headway.errors import UsageError


class CommandParser(argparse.ArgumentParser):
    """Parses a command's arguments; flags may be spelled with ``-`` or ``_``."""

    def __init__(self, command: Command) -> None:
        usage = " ".join(filter(None, ("headway", command.name, command.arguments, "[flags]")))
        super().__init__(
            prog=f"headway {command.name}",
            usage=usage,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.add_argument(
            "--json", action="store_true", help="print one JSON object and nothing else"
        )

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments.

        Raises:
            UsageError: an argument is unknown or malformed.
            SystemExit: the help was asked for and printed.
        """
        spelled = _with_dashes(arguments)
        self._refuse_switch_values(spelled)
        args, unknown = self.parse_known_args(spelled)
        if unknown:
            raise UsageError(self._stranger(unknown[0]))
        return args

    def error(self, message: str) -> NoReturn:
        """Raise, where argparse would print the usage and exit."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _refuse_switch_values(self, arguments: Sequence[str]) -> None:
        """Say how a switch is turned off, since ``--switch=false`` is what a setting looks like."""
        for argument in arguments:
            flag, equals, _ = argument.partition("=")
            action = self._option_string_actions.get(flag)
            if argument == "--":
                return
            if equals and isinstance(action, argparse.BooleanOptionalAction):
                on, off = action.option_strings[:2]
                raise UsageError(f"{flag} takes no value: {on} turns it on, {off} off")

    def _stranger(self, argument: str) -> str:
        if not argument.startswith("-"):
            return f"unexpected argument {argument!r} (see {self.prog} --help)"
        flag = argument.partition("=")[0]
        if flag in _flags_of_settings():
            return f"unknown flag {flag} (it is one of headway serve)"
        close = get_close_matches(flag, list(self._option_string_actions), n=1)
        hint = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
        return f"unknown flag {flag} ({hint})"


def _flags_of_settings() -> set[str]:
    from headway.config import all_settings

    return {setting.flag for setting in all_settings()}


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def _with_dashes(arguments: Sequence[str]) -> list[str]:
    """Spell ``--max_num_seqs=8`` as ``--max-num-seqs=8``; what follows a lone ``--`` stays."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = [_dashed(argument) for argument in arguments[:end]]
    return [*flags, *arguments[end:]]


def _dashed(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value
