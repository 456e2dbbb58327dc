"""``headway config`` in its three forms, and flags as a source of settings."""

import json
import os
from argparse import Namespace
from pathlib import Path

import pytest

from headway.cli.commands import Command
from headway.cli.main import main
from headway.cli.options import add_model_argument, add_settings, load
from headway.cli.parser import CommandParser
from headway.errors import UsageError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEADWAY_"):
            monkeypatch.delenv(name)


def parse(*arguments: str) -> Namespace:
    parser = CommandParser(Command("config", "[MODEL]", "test"))
    add_model_argument(parser)
    add_settings(parser)
    return parser.read(arguments)


def test_json_has_value_and_origin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SERVER_API_KEY", "hunter2")
    assert main(["config", "--json", "--max_num_seqs", "8"]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    settings = json.loads(out)["settings"]
    assert settings["scheduler"]["max_num_seqs"] == {
        "value": 8,
        "origin": "flag",
        "source": "--max-num-seqs",
    }
    assert settings["server"]["api_key"]["source"] == "HEADWAY_SERVER_API_KEY"
    assert settings["kv"]["num_blocks"] == {"value": None, "origin": "default", "source": ""}


def test_human_view_shows_origins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--no-enable-chunked-prefill", "--api-key", "hunter2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["enable_chunked_prefill", "false", "flag", "--enable-chunked-prefill"] in lines
    assert ["api_key", "(not", "shown)", "flag", "--api-key"] in lines
    assert ["num_blocks", "-", "default"] in lines


def test_toml_is_taken_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--policy=fcfs", "--queue-timeout-s=2.5", "--model", 'a "b" \\ é']
    assert main(["config", "--toml", *flags]) == 0
    path = tmp_path / "headway.toml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["config", "--json", "--config", str(path)]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["scheduler"]["queue_timeout_s"]["value"] == 2.5
    assert settings["model"]["path"]["value"] == 'a "b" \\ é'


def test_how_often_to_write_a_profile_is_refused_without_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "--keep-profile-every-s", "60"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "profile.every_s has no effect without profile.path" in line
    assert "profile.every_s from flag --keep-profile-every-s" in line
    assert main(["config", "--keep-profile-every-s", "60", "--keep-profile", "p.json"]) == 0


def test_flags_are_spelled_with_dash_or_underscore_and_values_stay() -> None:
    args = parse("--served_name=a_b", "--max_num_seqs", "8", "--journal", "x_y")
    settings = load(args).settings
    assert settings.model.served_name == "a_b"
    assert settings.scheduler.max_num_seqs == 8
    assert settings.journal.path == "x_y"


def test_a_repeated_key_flag_adds_up() -> None:
    assert load(parse("--api-key", "a", "--api-key", "b,c")).settings.server.api_key == ("a", "b,c")


def test_the_model_as_argument() -> None:
    assert load(parse("some_model")).settings.model.path == "some_model"
    assert load(parse("--", "--odd_name")).settings.model.path == "--odd_name"
    assert load(parse()).origins["model.path"].kind == "default"
    with pytest.raises(UsageError, match="given twice"):
        load(parse("a", "--model", "b"))


def test_only_given_flags_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_SERVER_ACCESS_LOG", "true")
    assert load(parse()).settings.server.access_log is True
    assert load(parse("--no-access-log")).settings.server.access_log is False


TABLES = """
[scheduler]
protect = "tpot"
max_num_seqs = 99

[classes.chat]
weight = 8

[tenants.acme]
api_key = "hunter2"
"""


@pytest.fixture
def tables(tmp_path: Path) -> str:
    path = tmp_path / "tables.toml"
    path.write_text(TABLES)
    return str(path)


def test_classes_and_tenants_are_shown_with_origins(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--config", tables]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert ["[classes.chat]"] in lines
    assert ["weight", "8.0", "file", tables] in lines
    assert ["best_effort", "false", "default"] in lines
    assert ["api_key", "(not", "shown)", "file", tables] in lines
    assert ["max_prefill_chunk_tokens", "256", "protect", "=", "tpot"] in lines
    assert err.startswith(
        'headway: warning: scheduler.protect = "tpot", but scheduler.max_num_seqs'
    )
    assert err.count("\n") == 1


def test_the_default_class_is_shown_as_what_it_comes_to(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--config", tables]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["default_class", "chat", "default"] in lines
    assert main(["config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]["server"]["default_class"]
    assert shown == {"value": "default", "origin": "default", "source": ""}


def test_classes_tenants_and_warnings_are_in_the_json(
    tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--config", tables, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "hunter2" not in out
    found = json.loads(out)
    weight = {"value": 8.0, "origin": "file", "source": tables}
    assert found["classes"]["chat"]["weight"] == weight
    assert found["tenants"]["acme"]["api_key"]["value"] == "(not shown)"
    chunk = found["settings"]["scheduler"]["max_prefill_chunk_tokens"]
    assert chunk == {"value": 256, "origin": "protect", "source": "tpot"}
    assert len(found["warnings"]) == 1


def test_toml_has_the_tables_and_its_warnings_stay_out_of_it(
    tables: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["config", "--config", tables, "--toml"]) == 0
    out, err = capsys.readouterr()
    assert "headway: warning" in err
    assert "API keys are not printed; add them to the file: tenants.acme.api_key" in err
    assert "# api_key = (not shown): add it" in out
    again = tmp_path / "again.toml"
    again.write_text(out)
    assert main(["config", "--config", str(again), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"]["chat"]["weight"]["value"] == 8.0
