"""What docs/bench.md says is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from headway.cli.commands import COMMANDS
from headway.cli.parser import CommandParser
from headway.report import report_on, to_json
from headway.workload import build, read_spec, stream_keys
from headway.workload.spec import SOURCES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")


def test_every_key_of_a_stream_is_in_the_table_as_it_is() -> None:
    for key in stream_keys():
        default = "" if key.default is None else f"`{key.default}`"
        assert f"| `{key.name}` | {default} | {key.meaning} |" in DOCUMENT


def test_every_source_is_told() -> None:
    for source in SOURCES:
        assert f"| `{source}` |" in DOCUMENT


def test_the_workload_file_makes_requests(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert set(tomllib.loads(text)) == {"duration_s", "seed", "classes", "streams"}
    path = tmp_path / "workload.toml"
    path.write_text(text, encoding="utf-8")
    workload = build(read_spec(path))
    assert len(workload.arrivals) > 100
    assert len(workload.loops) == 1


def test_every_flag_of_its_own_is_told() -> None:
    from headway.cli import bench

    (command,) = (each for each in COMMANDS if each.name == "bench")
    parser = CommandParser(command)
    bench.configure(parser)
    streams = {"--" + key.name.replace("_", "-") for key in stream_keys()}
    own = {
        option
        for group in parser._action_groups
        if group.title in ("server", "run", "workload", "output")
        for action in group._group_actions
        for option in action.option_strings
    }
    for flag in own - streams - {"--title"}:
        assert f"{flag}" in DOCUMENT, flag


def test_every_key_of_the_json_is_told() -> None:
    report = report_on([], 0.0, {}, title="", kind="bench", facts={})
    for key in to_json(report, detailed=True):
        name = re.sub(r"^(\w+|p99\.9)_(ttft|tpot|itl|e2el|queue|late)_ms$", r"\1_…", key)
        if not key.startswith("request_"):
            assert f"`{name}`" in DOCUMENT, key
