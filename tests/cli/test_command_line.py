"""Dispatch, exit codes, and one-line errors of the ``headway`` command."""

import importlib
import json
import os
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest

from headway import __version__
from headway.cli.commands import COMMANDS
from headway.cli.main import BROKEN_PIPE, INTERRUPTED, main
from headway.cli.parser import CommandParser
from headway.config import all_settings
from headway.errors import EngineStoppedError, HeadwayError, RequestError, UsageError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEADWAY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch):
    """Replace the body of ``headway models``."""

    def install(run) -> None:
        module = SimpleNamespace(configure=lambda parser: None, run=run)
        monkeypatch.setitem(sys.modules, "headway.cli.models", module)

    return install


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"  {command.name}" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"headway {__version__}\n"


def test_no_command_shows_the_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage:" in captured.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_and_json(
    command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([command.name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: headway {command.name}")
    assert "--json" in out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_usage_line_names_the_positional_arguments(command) -> None:
    parser = CommandParser(command)
    importlib.import_module(command.module).configure(parser)
    positional = [action for action in parser._actions if not action.option_strings]
    words = [f"[{a.metavar}]" if a.nargs == "?" else str(a.metavar) for a in positional]
    assert " ".join(words) == command.arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["confg"], "unknown command confg (did you mean config?)"),
        (["zzz"], "unknown command zzz (see headway --help)"),
        (["--versoin"], "unknown flag --versoin (see headway --help)"),
        (["config", "--max-num-sequences", "3"], "(did you mean --max-num-seqs?)"),
        (["generate", "--port", "3", "x"], "unknown flag --port (it is one of headway serve)"),
        (
            ["config", "--enable_chunked_prefill=false"],
            "--enable-chunked-prefill takes no value: --enable-chunked-prefill turns it on, "
            "--no-enable-chunked-prefill off",
        ),
        (["config", "extra"], "unexpected argument 'extra'"),
        (["config", "--port"], "argument --port: expected one argument"),
        (["config", "--port=x"], "server.port = 'x' (flag --port)"),
        (["config", "--max-num", "3"], "unknown flag --max-num "),
        (["config", "--json", "--toml"], "exclude each other"),
        (["config", "--config", "/nonexistent.toml"], "cannot read /nonexistent.toml"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("headway: error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("change\nthis"), 2),
        (RequestError("too long"), 2),
        (EngineStoppedError("draining"), 1),
        (KeyboardInterrupt(), INTERRUPTED),
    ],
)
def test_exit_codes(error: BaseException, code: int, fake, capsys) -> None:
    def run(args: Namespace) -> int:
        raise error

    fake(run)
    assert main(["models"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == isinstance(error, HeadwayError)


def test_the_commands_own_code_is_passed_on(fake) -> None:
    fake(lambda args: 1)
    assert main(["models", "--json"]) == 1


def test_bugs_are_not_hidden(fake) -> None:
    def run(args: Namespace) -> int:
        raise ZeroDivisionError

    fake(run)
    with pytest.raises(ZeroDivisionError):
        main(["models"])


def test_a_reader_that_leaves_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "config", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == BROKEN_PIPE
    assert errors == b""


def test_module_and_command_are_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headway", "config", "--json", "--port=1"],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["settings"]["server"]["port"]["value"] == 1


def test_every_setting_has_a_flag_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--help"]) == 0
    out = capsys.readouterr().out
    for setting in all_settings():
        assert f"  {setting.flag}" in out
        assert f"[{setting.section}]" in out
