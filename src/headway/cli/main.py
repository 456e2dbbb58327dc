"""Entry of the ``headway`` command: finds the command, runs it, turns errors into exit codes.

Exit codes: 0 done; 1 the thing checked does not hold, the engine stopped, a request ended without
a result, or the system refused something (a full disk, …); 2 bad usage or input;
130 interrupted; 141 the reader of standard output went away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from headway._version import __version__
from headway.cli.commands import COMMANDS, Command
from headway.errors import EngineStoppedError, GenerationError, RequestError, UsageError

INTERRUPTED = 130
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    Args:
        argv: arguments without the program's name; None takes those of the process.
    """
    _tolerate_any_character()
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:  # a service may have none
            sys.stdout.flush()
        return code
    except (UsageError, RequestError) as error:
        return _complain(error, 2)
    except (EngineStoppedError, GenerationError) as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except OSError as error:
        _silence_stdout()
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", 1)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(_help(), file=sys.stderr)
        return 2
    first, *rest = arguments
    if first in ("-h", "--help"):
        print(_help())
        return 0
    if first == "--version":
        print(f"headway {__version__}")
        return 0
    return _run(_find(first), rest)


def _find(name: str) -> Command:
    for command in COMMANDS:
        if command.name == name:
            return command
    from difflib import get_close_matches

    what = "flag" if name.startswith("-") else "command"
    close = get_close_matches(name, [command.name for command in COMMANDS], n=1)
    hint = f"did you mean {close[0]}?" if close else "see headway --help"
    raise UsageError(f"unknown {what} {name} ({hint})")


def _run(command: Command, arguments: list[str]) -> int:
    from importlib import import_module

    from headway.cli.parser import CommandParser

    module = import_module(command.module)
    parser = CommandParser(command)
    module.configure(parser)
    try:
        args = parser.read(arguments)
    except SystemExit as done:  # argparse has printed the help
        return int(done.code or 0)
    code: int = module.run(args)
    return code


def _help() -> str:
    width = max(len(f"{command.name} {command.arguments}") for command in COMMANDS)
    rows = [
        f"  {f'{command.name} {command.arguments}'.ljust(width)}  {command.summary}"
        for command in COMMANDS
    ]
    return "\n".join(
        [
            "usage: headway COMMAND [arguments]",
            "",
            "Serves language models and keeps the latency it promised.",
            "",
            "commands:",
            *rows,
            "",
            "`headway COMMAND --help` shows the flags of a command; every command has --json.",
            "`headway --version` shows the version.",
        ]
    )


def _complain(error: object, code: int) -> int:
    print(f"headway: error: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _tolerate_any_character() -> None:
    """Have characters that the terminal's encoding lacks shown as ``?`` instead of failing."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _silence_stdout() -> None:
    """If output can't be written, point it away, or the interpreter complains about it at exit."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
