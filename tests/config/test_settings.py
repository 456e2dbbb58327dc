"""The declarations themselves, and what sections refuse when they are made in code."""

import dataclasses
import re

import pytest

from headway.config import (
    SECTIONS,
    KvSettings,
    ModelSettings,
    SchedulerSettings,
    ServerSettings,
    Settings,
    all_settings,
)
from headway.errors import ConfigError


def test_defaults_are_allowed_values() -> None:
    Settings()


@pytest.mark.parametrize("attribute", ["flag", "variable", "key"])
def test_names_are_unique(attribute: str) -> None:
    names = [getattr(setting, attribute) for setting in all_settings()]
    assert len(names) == len(set(names))


def test_every_setting_says_what_it_means() -> None:
    for setting in all_settings():
        assert setting.meaning
        assert not setting.meaning.endswith("."), setting.key


def test_backticked_words_in_meanings_name_real_settings() -> None:
    words = {setting.name for setting in all_settings()}
    words |= {choice for setting in all_settings() for choice in setting.rule.choices}
    for setting in all_settings():
        for word in re.findall(r"`([a-z_]+)`", setting.meaning):
            assert word in words, f"{setting.key} speaks of {word}"


def test_sections_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().kv.block_size = 8  # type: ignore[misc]
    names = {"model", "scheduler", "kv", "simulation", "server", "journal", "profile"}
    assert set(SECTIONS) == names


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (KvSettings, {"block_size": 0}, "kv.block_size = 0: must be an integer of at least 1"),
        (KvSettings, {"block_size": True}, "kv.block_size = True"),
        (KvSettings, {"block_size": 16.0}, "kv.block_size = 16.0"),
        (KvSettings, {"memory_utilization": 0}, "above 0 and up to 1"),
        (KvSettings, {"memory_utilization": float("nan")}, "kv.memory_utilization = nan"),
        (KvSettings, {"watermark": 1}, "below 1"),
        (ServerSettings, {"port": 65536}, "up to 65535"),
        (ServerSettings, {"host": ""}, "must be a text that is not empty"),
        (ServerSettings, {"api_key": ("",)}, "none of them empty"),
        (ServerSettings, {"queue": 1}, None),
        (SchedulerSettings, {"queue_timeout_s": float("inf")}, "a number above 0, or none"),
        (ModelSettings, {"executor": "replay"}, 'not supported yet; must be one of "cpu"'),
        (SchedulerSettings, {"policy": "fifo"}, 'must be one of "fcfs", "sjf"'),
        (
            SchedulerSettings,
            {"max_num_seqs": 9, "max_num_batched_tokens": 8},
            r"max_num_batched_tokens \(8\) must be at least scheduler.max_num_seqs \(9\)",
        ),
        (
            SchedulerSettings,
            {"max_prefill_chunk_tokens": 8, "enable_chunked_prefill": False},
            "no effect",
        ),
    ],
)
def test_sections_refuse(section: type, values: dict[str, object], message: str | None) -> None:
    error = TypeError if message is None else ConfigError
    with pytest.raises(error, match=message):
        section(**values)


def test_values_made_in_code_get_the_declared_type() -> None:
    values = {"max_body_bytes": "1MiB", "drain_timeout_s": 5, "api_key": ["a"]}
    made = ServerSettings(**values)  # type: ignore[arg-type]
    assert made.max_body_bytes == 2**20
    assert type(made.drain_timeout_s) is float
    assert made.api_key == ("a",)


def test_a_secret_is_not_in_the_complaint() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerSettings(api_key=("hunter2", ""))
    assert "hunter2" not in str(caught.value)
