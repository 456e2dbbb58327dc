"""Where reports go: table or JSON on standard output, and files."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from headway.cli.output import print_json

if TYPE_CHECKING:
    from headway.report import Report


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flags of files that a report on requests can be written to."""
    group = add_files(parser, "request")
    group.add_argument(
        "--detailed", action="store_true", help="lists with an entry for each request in the JSON"
    )


def add_files(parser: argparse.ArgumentParser, row: str) -> argparse._ArgumentGroup:
    """Add the flags of the files of any report, with a line in the CSV for each ``row``."""
    group = parser.add_argument_group("output")
    files = (
        ("--output", "write the JSON there"),
        ("--csv", f"write a row for each {row}"),
        ("--html", "write a page with charts"),
    )
    for flag, text in files:
        group.add_argument(flag, metavar="FILE", type=writable, help=text)
    group.add_argument("--title", metavar="TEXT", help="of page and table")
    return group


def writable(path: str) -> str:
    """Find out before the work what would otherwise be found out after it."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{path} can't be written: there is no folder {folder}")
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path} can't be written: it is a folder")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} can't be written: permission denied")
    return path


def write_report(args: argparse.Namespace, report: Report) -> None:
    """Write and print a report on requests."""
    from headway.report import as_text, page, to_json, write_csv

    write(
        args,
        to_json(report, detailed=args.detailed),
        text=lambda: as_text(report),
        page=lambda: page(report),
        csv=lambda file: write_csv(report.records, file),
    )


def write(
    args: argparse.Namespace,
    value: dict[str, Any],
    *,
    text: Callable[[], str],
    page: Callable[[], str],
    csv: Callable[[TextIO], None],
) -> None:
    """Write and print a report, as :func:`write_value` does, with its page and its rows."""
    others = ((args.csv, csv), (args.html, lambda file: file.write(page())))
    write_value(args, value, text=text, others=others)


def write_value(
    args: argparse.Namespace,
    value: Mapping[str, Any],
    *,
    text: Callable[[], str],
    others: Iterable[tuple[str | None, Callable[[TextIO], object]]] = (),
) -> None:
    """Print ``value`` as JSON, or the text, after everything that was asked for is in its file.

    A file that can't be written doesn't cost the figures of a long run: the others are written, and
    they are printed, before it is an error.

    Args:
        args: the flags, of which ``--output`` and ``--json`` count here.
        value: what is found.
        text: the same in words.
        others: further files, if they were asked for, and what writes them.

    Raises:
        OSError: files could not be written; it is the first one's, and names it.
    """
    writers = [(args.output, lambda file: json.dump(value, file, allow_nan=False)), *others]
    errors = [_failure(path, write_to) for path, write_to in writers if path is not None]
    if args.json:
        print_json(value)
    else:
        print(text())
    for error in filter(None, errors):
        raise error


def _failure(path: str, write_to: Callable[[TextIO], object]) -> OSError | None:
    """Write a file; what went wrong names it, which errors of writing don't by themselves."""
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            write_to(file)
    except OSError as error:
        error.filename = path
        return error
    return None
