"""What the documents say about commands, flags, settings and targets is so."""

import argparse
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from headway.cli.commands import COMMANDS
from headway.cli.parser import CommandParser
from headway.config import SECTIONS, all_settings, load_settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern) if path.is_file()
)


def test_there_are_documents() -> None:
    assert DOCUMENTS


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def document(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text(encoding="utf-8")


def test_commands_exist(document: str) -> None:
    known = {command.name for command in COMMANDS}
    for command, _ in called(document):
        assert command in known, f"headway {command}"


def test_flags_exist(document: str) -> None:
    known = {setting.flag for setting in all_settings()}
    known |= {f"--no-{flag[2:]}" for flag in known}
    for command, arguments in called(document):
        for flag in re.findall(r"(?<!\S)--[a-z][a-z_-]*", arguments):
            spelled = flag.replace("_", "-")
            assert spelled in known | own_flags(command), f"headway {command} {flag}"


def test_environment_variables_exist(document: str) -> None:
    known = {setting.variable for setting in all_settings()} | {
        "HEADWAY_CONFIG",
        "HEADWAY_CACHE",
        "HEADWAY_TRACES",
    }
    for name in re.findall(r"\bHEADWAY_[A-Z_]*[A-Z]\b", document):
        assert name in known, name


def test_settings_files_load(document: str, tmp_path: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```", document, re.MULTILINE | re.DOTALL):
        if set(tomllib.loads(block)) & set(SECTIONS):
            path = tmp_path / "headway.toml"
            path.write_text(block, encoding="utf-8")
            load_settings(path)


def test_make_targets_exist(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for line in shell_lines(document):
        words = re.match(r"^make((?: [a-z-]+)*)", line)
        for target in words[1].split() if words else ():
            assert target in targets, f"make {target}"


def test_links_lead_somewhere(request: pytest.FixtureRequest) -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not target.startswith("mailto:"):
                assert (path.parent / target).exists(), f"{path.name} links to {target}"


def shell_lines(document: str) -> Iterator[str]:
    """Yield the lines of shell blocks, continued ones joined, comments and prompts removed."""
    blocks = re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ").partition(" #")[0].strip()


def called(document: str) -> Iterator[tuple[str, str]]:
    """Yield (command, arguments) of each call of headway, in shell blocks and inline code."""
    inline = re.findall(r"`(headway [^`\n]+)`", document)
    for line in [*shell_lines(document), *inline]:
        for call in re.split(r"[|;&]+", line):
            match = re.match(r"\s*(?:[A-Z_]+=\S+ )*(?:\S*/)?headway ([a-z]+)(.*)", call)
            if match:
                yield match[1], match[2]


@cache
def own_flags(command: str) -> frozenset[str]:
    """Return all flags of a command, and of the checks below it."""
    (described,) = (each for each in COMMANDS if each.name == command)
    parser = CommandParser(described)
    import_module(described.module).configure(parser)
    below = [
        each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for each in action.choices.values()
    ]
    return frozenset(flag for each in (parser, *below) for flag in each._option_string_actions)
