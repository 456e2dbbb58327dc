"""What ``to_toml`` writes, ``load_settings`` reads back, whatever the values are."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headway.config import all_settings, load_settings, to_toml

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
bounds = st.floats(min_value=1e-9, max_value=1e12, allow_nan=False)
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "model.path": texts,
        "model.served_name": texts.filter(lambda text: text.strip().lower() != "none"),
        "model.seed": st.integers(0, 2**63 - 1),
        "journal.path": texts.filter(lambda text: text.strip().lower() != "none"),
        "scheduler.queue_timeout_s": bounds,
        "scheduler.max_queue_requests": st.none() | st.integers(0, 10**30),
        "scheduler.max_queue_tokens": st.integers(1, 10**30),
        "server.access_log": st.booleans(),
        "kv.memory_utilization": st.floats(1e-300, 1),
    },
)


@given(FLAGS)
def test_round_trip(flags: dict[str, object]) -> None:
    loaded = load_settings(flags=flags)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "headway.toml"
        path.write_text(to_toml(loaded), encoding="utf-8", newline="")
        assert load_settings(path).settings == loaded.settings


def test_every_setting_is_written_or_said_to_be_unset() -> None:
    text = to_toml(load_settings())
    for setting in all_settings():
        assert f"{setting.name} = " in text or f"# {setting.name} is unset" in text


def test_keys_are_hidden_and_origins_stand_beside() -> None:
    environ = {"HEADWAY_SERVER_API_KEY": "hunter2", "HEADWAY_SERVER_PORT": "1"}
    text = to_toml(load_settings(environ=environ))
    assert "hunter2" not in text
    assert "# api_key = (not shown)" in text
    assert "port = 1  # environment HEADWAY_SERVER_PORT" in text


def test_a_file_name_cannot_break_out_of_its_comment(tmp_path: Path) -> None:
    path = tmp_path / "a\nport = 1\n.toml"
    path.write_text("[server]\nport = 2\n")
    again = tmp_path / "again.toml"
    again.write_text(to_toml(load_settings(path)))
    assert load_settings(again).settings.server.port == 2
