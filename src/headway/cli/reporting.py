"""Where reports go: table or JSON on standard output, and files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.cli.output import print_json

if TYPE_CHECKING:
    from headway.report import Report
    from headway.report.page import Table


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flags of files that a report can be written to."""
    group = parser.add_argument_group("output")
    group.add_argument("--output", metavar="FILE", help="write the JSON there")
    group.add_argument(
        "--detailed", action="store_true", help="lists with an entry for each request in the JSON"
    )
    group.add_argument("--csv", metavar="FILE", help="write a row for each request")
    group.add_argument("--html", metavar="FILE", help="write a page with charts")
    group.add_argument("--title", metavar="TEXT", help="of page and table")


def write_report(args: argparse.Namespace, report: Report) -> None:
    """Print the report, after everything that was asked for is in its file."""
    from headway.report import as_text, to_json

    value = to_json(report, detailed=args.detailed)
    write_files(args, report, value)
    if args.json:
        print_json(value)
    else:
        print(as_text(report))


def write_files(
    args: argparse.Namespace,
    report: Report,
    value: Mapping[str, Any],
    tables: Sequence[tuple[str, Table]] = (),
) -> None:
    """Write the files that were asked for: ``value`` as JSON, ``tables`` first on the page."""
    from headway.report import page, write_csv

    if args.output is not None:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(value, file, allow_nan=False)
    if args.csv is not None:
        with open(args.csv, "w", encoding="utf-8", newline="") as file:
            write_csv(report.records, file)
    if args.html is not None:
        with open(args.html, "w", encoding="utf-8") as file:
            file.write(page(report, tables))
