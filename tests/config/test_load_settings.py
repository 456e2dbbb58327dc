"""Sources, their order, and complaints that say where, what and what is allowed instead."""

from pathlib import Path

import pytest

from headway.config import Origin, load_settings, value_of
from headway.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "headway.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def complaint(**sources: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_nothing_given_is_the_defaults() -> None:
    loaded = load_settings()
    assert loaded.settings.scheduler.max_num_seqs == 64
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}


def test_flag_wins_over_environment_over_file(write) -> None:
    path = write("[scheduler]\nmax_num_seqs = 1\nmax_queue_requests = 1\n[kv]\nblock_size = 1\n")
    environ = {"HEADWAY_SCHEDULER_MAX_NUM_SEQS": "2", "HEADWAY_SCHEDULER_MAX_QUEUE_REQUESTS": "2"}
    loaded = load_settings(path, environ, {"scheduler.max_num_seqs": "3"})
    assert loaded.settings.scheduler.max_num_seqs == 3
    assert loaded.settings.scheduler.max_queue_requests == 2
    assert loaded.settings.kv.block_size == 1
    assert loaded.origins["scheduler.max_num_seqs"] == Origin("flag", "--max-num-seqs")
    assert str(loaded.origins["scheduler.max_queue_requests"]) == (
        "environment HEADWAY_SCHEDULER_MAX_QUEUE_REQUESTS"
    )
    assert loaded.origins["kv.block_size"] == Origin("file", str(path))
    assert loaded.origins["kv.watermark"] == Origin("default")


def test_headway_config_names_the_file_and_the_flag_wins(write, tmp_path: Path) -> None:
    named = write("[kv]\nblock_size = 4\n")
    other = tmp_path / "other.toml"
    other.write_text("[kv]\nblock_size = 8\n")
    environ = {"HEADWAY_CONFIG": str(named)}
    assert load_settings(environ=environ).settings.kv.block_size == 4
    assert load_settings(other, environ).settings.kv.block_size == 8


def test_foreign_variables_and_the_cache_are_left_alone() -> None:
    load_settings(environ={"PATH": "/bin", "HEADWAYS": "x", "HEADWAY_CACHE": "/tmp/x"})


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("HEADWAY_SERVER_ACCESS_LOG", "TRUE", "server.access_log", True),
        ("HEADWAY_SERVER_ACCESS_LOG", "0", "server.access_log", False),
        ("HEADWAY_SERVER_PORT", " 80 ", "server.port", 80),
        ("HEADWAY_KV_CAPACITY_BYTES", "2GiB", "kv.capacity_bytes", 2**31),
        ("HEADWAY_KV_CAPACITY_BYTES", "2_000", "kv.capacity_bytes", 2000),
        ("HEADWAY_KV_CAPACITY_BYTES", "none", "kv.capacity_bytes", None),
        ("HEADWAY_SCHEDULER_QUEUE_TIMEOUT_S", "5", "scheduler.queue_timeout_s", 5.0),
        ("HEADWAY_SCHEDULER_MAX_QUEUE_REQUESTS", "none", "scheduler.max_queue_requests", None),
        ("HEADWAY_SCHEDULER_MAX_QUEUE_REQUESTS", "0", "scheduler.max_queue_requests", 0),
        ("HEADWAY_SERVER_API_KEY", "a, b", "server.api_key", ("a", "b")),
        ("HEADWAY_SERVER_API_KEY", "none", "server.api_key", ()),
        ("HEADWAY_MODEL_PATH", "none", "model.path", "none"),
    ],
)
def test_texts_are_parsed(variable: str, text: str, key: str, value: object) -> None:
    found = value_of(load_settings(environ={variable: text}).settings, key)
    assert found == value
    assert type(found) is type(value)


def test_an_integer_in_the_file_becomes_the_declared_float(write) -> None:
    path = write("[scheduler]\nqueue_timeout_s = 5\n[kv]\ncapacity_bytes = '1MiB'\n")
    settings = load_settings(path).settings
    assert type(settings.scheduler.queue_timeout_s) is float
    assert settings.kv.capacity_bytes == 2**20


def test_none_in_the_file_unsets_what_can_be_unset(write) -> None:
    path = write('[scheduler]\nmax_queue_requests = "none"\n[model]\nserved_name = "None"\n')
    settings = load_settings(path).settings
    assert settings.scheduler.max_queue_requests is None
    assert settings.model.served_name is None
    assert "must be an integer" in complaint(file=write('[kv]\nblock_size = "none"\n'))


def test_typed_flags_are_checked_as_they_are() -> None:
    loaded = load_settings(flags={"kv.block_size": 8, "server.api_key": ["a,b", "c"]})
    assert loaded.settings.kv.block_size == 8
    assert loaded.settings.server.api_key == ("a,b", "c")
    assert "kv.block_size = True (flag --block-size)" in complaint(flags={"kv.block_size": True})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[scheduler]\nmax_num_seq = 1\n", "(did you mean scheduler.max_num_seqs?)"),
        ("[scheduler]\nblock_size = 1\n", "(did you mean kv.block_size?)"),
        ("[schedulr]\nx = 1\n", "unknown section schedulr (did you mean scheduler?)"),
        ("max_num_seqs = 1\n", "max_num_seqs belongs in a section: [scheduler]"),
        ("path = 'x'\n", "[model] or [journal]"),
        ("zzz = 1\n", "unknown setting zzz"),
        ("scheduler = 1\n", "scheduler must be a table"),
        ("[scheduler]\nmax_num_seqs = '8'\n", "scheduler.max_num_seqs = '8' (file "),
        ("[scheduler]\nmax_num_seqs = true\n", "must be an integer of at least 1"),
        ("[scheduler]\nmax_queue_requests = -1\n", "an integer of at least 0, or none"),
        (f"[model]\nseed = {2**63}\n", "of at least 0 and up to 9223372036854775807, or none"),
        ("[scheduler]\nmax_num_seqs = 8.0\n", "must be an integer of at least 1"),
        ("[scheduler]\nqueue_timeout_s = inf\n", "must be a number above 0, or none"),
        ("[server]\naccess_log = 1\n", "must be true or false"),
        ("[server]\napi_key = ['a', 1]\n", "a list of texts"),
        ("[server]\nport = 1\nport = 2\n", "headway.toml: "),
        ("[server\n", "line 1"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_files(write, text: str | bytes, words: str) -> None:
    message = complaint(file=write(text))
    assert words in message
    assert "headway.toml" in message


def test_unreadable_files(tmp_path: Path) -> None:
    assert "No such file" in complaint(file=tmp_path / "absent.toml")
    assert "directory" in complaint(file=tmp_path)
    assert "null" in complaint(file="a\0b")
    assert "absent.toml" in complaint(environ={"HEADWAY_CONFIG": str(tmp_path / "absent.toml")})
    assert "HEADWAY_CONFIG is empty" in complaint(environ={"HEADWAY_CONFIG": ""})


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("HEADWAY_MAX_NUM_SEQS", "1", "did you mean HEADWAY_SCHEDULER_MAX_NUM_SEQS?"),
        ("HEADWAY_CLASSES_CHAT_WEIGHT", "1", ": classes can only be set in the file"),
        ("HEADWAY_TENANTS_A_API_KEY", "1", ": tenants can only be set in the file"),
        ("HEADWAY_CONFIGS", "x", "did you mean HEADWAY_CONFIG?"),
        ("HEADWAY_SERVER_API_KEY", "", "is empty"),
        ("HEADWAY_SERVER_API_KEY", "a,,b", "none of them empty"),
        ("HEADWAY_SERVER_PORT", "8k", "= '8k' (environment HEADWAY_SERVER_PORT)"),
        ("HEADWAY_SERVER_PORT", "none", "must be an integer"),
        ("HEADWAY_SERVER_PORT", "9" * 5000, "must be an integer"),
        ("HEADWAY_KV_CAPACITY_BYTES", "2GB", 'such as "2GiB"'),
        ("HEADWAY_SCHEDULER_QUEUE_TIMEOUT_S", "nan", "must be a number above 0"),
        (
            "HEADWAY_MODEL_EXECUTOR",
            "replay",
            'not supported yet; must be one of "cpu", "torch", "simulated"',
        ),
        ("HEADWAY_MODEL_PATH", "\udcff", "must be valid Unicode"),
    ],
)
def test_bad_variables(variable: str, text: str, words: str) -> None:
    assert words in complaint(environ={variable: text})


def test_unknown_flags_name_the_nearest() -> None:
    assert "did you mean kv.block_size?" in complaint(flags={"kv.blocksize": "1"})


def test_contradictions_say_where_both_sides_come_from(write) -> None:
    path = write("[scheduler]\nmax_num_seqs = 2000\n")
    message = complaint(file=path)
    assert f"scheduler.max_num_seqs from file {path}" in message
    assert "scheduler.max_num_batched_tokens from default" in message


def test_each_source_alone_may_be_incomplete_if_the_whole_is_consistent(write) -> None:
    path = write("[scheduler]\nmax_num_seqs = 2000\n")
    load_settings(path, {"HEADWAY_SCHEDULER_MAX_NUM_BATCHED_TOKENS": "4096"})


def test_secrets_are_not_shown_in_complaints() -> None:
    message = complaint(environ={"HEADWAY_SERVER_API_KEY": "hunter2,,"})
    assert "hunter2" not in message
