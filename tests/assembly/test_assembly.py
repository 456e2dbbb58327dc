"""What is decided when an engine is put together: memory, limits, sampling defaults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway import assembly
from headway.config import load_settings
from headway.core.limits import SchedulerLimits
from headway.errors import ConfigError, ModelError
from headway.testing.tiny_models import tiny_config

CONFIG = tiny_config(vocab_size=97)
BLOCK_BYTES = assembly.kv_bytes_per_block(CONFIG, 16, "float32")


def limits(**flags: object) -> SchedulerLimits:
    keys = {name.replace("__", "."): value for name, value in flags.items()}
    return assembly._limits(load_settings(flags=keys).settings, CONFIG)


def test_a_block_holds_keys_and_values_of_all_layers() -> None:
    elements = 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 16
    assert elements * 4 == BLOCK_BYTES
    assert assembly.kv_bytes_per_block(CONFIG, 16, "bfloat16") == elements * 2


def test_the_pool_is_as_large_as_was_said() -> None:
    assert limits(kv__num_blocks=77).num_blocks == 77
    assert limits(kv__capacity_bytes=10 * BLOCK_BYTES + 1).num_blocks == 10


def test_the_pool_is_never_larger_than_could_be_used() -> None:
    found = limits(scheduler__max_num_seqs=3)
    assert found.num_blocks == 3 * -(-CONFIG.max_position_embeddings // 16)


def test_the_pool_follows_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = assembly._weight_bytes(load_settings().settings, CONFIG)
    monkeypatch.setattr(assembly, "available_memory_bytes", lambda: weights + 21 * BLOCK_BYTES)
    assert limits(kv__memory_utilization=0.5).num_blocks == 10
    with pytest.raises(ConfigError, match="no KV block"):
        limits(kv__memory_utilization=0.01)


def test_a_container_limits_the_memory(tmp_path: Path) -> None:
    assert assembly._container_memory_bytes(tmp_path) == sys.maxsize
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert assembly._container_memory_bytes(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert assembly._container_memory_bytes(tmp_path) == sys.maxsize


def test_contradicting_settings_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="beyond the model's context"):
        limits(model__max_model_len=CONFIG.max_position_embeddings + 1)
    with pytest.raises(ConfigError, match="less than one block"):
        limits(kv__capacity_bytes=BLOCK_BYTES - 1)
    with pytest.raises(ConfigError, match="longest sequence"):
        limits(
            scheduler__enable_chunked_prefill=False,
            scheduler__max_num_batched_tokens=64,
            kv__num_blocks=50,
        )


def test_the_default_model_samples_as_its_authors_advise() -> None:
    assert assembly._advised(load_settings().settings) == {"temperature": 0.2, "top_p": 0.9}
    other = load_settings(flags={"model.path": "./elsewhere"}).settings
    assert assembly._advised(other) == {}


def test_a_start_that_fails_leaves_no_journal(tmp_path: Path) -> None:
    journal = tmp_path / "left.journal"
    flags = {"model.path": str(tmp_path), "journal.path": str(journal)}
    with pytest.raises(ModelError, match="no model here"):
        assembly.assemble(load_settings(flags=flags).settings, lambda _: None)
    assert not journal.exists()
