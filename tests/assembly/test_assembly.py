"""What is decided when an engine is put together: memory, limits, sampling defaults."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from headway import assembly
from headway.config import ClassSettings, load_settings
from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts, StepFeatures
from headway.core.limits import SchedulerLimits
from headway.core.plan import BlockMove, StepPlan
from headway.errors import ConfigError, JournalError, ModelError
from headway.metrics.engine import EngineMetrics
from headway.models.dummy import dummy_tensors
from headway.testing.tiny_models import tiny_checkpoint, tiny_config

CONFIG = tiny_config(vocab_size=97)
CHECKPOINT = tiny_checkpoint(CONFIG)
BLOCK_BYTES = assembly.kv_bytes_per_block(CONFIG, 16, "bfloat16")


def limits(**flags: object) -> SchedulerLimits:
    keys = {name.replace("__", "."): value for name, value in flags.items()}
    return assembly._scheduler_config(load_settings(flags=keys).settings, CHECKPOINT).limits


def test_a_block_holds_keys_and_values_of_all_layers() -> None:
    elements = 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 16
    assert elements * 2 == BLOCK_BYTES
    assert assembly.kv_bytes_per_block(CONFIG, 16, "float32") == elements * 4
    scales = elements // CONFIG.head_dim
    assert assembly.kv_bytes_per_block(CONFIG, 16, "int8") == elements + 4 * scales


def test_the_pool_is_as_large_as_was_said() -> None:
    assert limits(kv__num_blocks=77).num_blocks == 77
    assert limits(kv__capacity_bytes=10 * BLOCK_BYTES + 1).num_blocks == 10


@pytest.mark.parametrize(
    ("flags", "num_blocks"),
    [
        ({}, 20),
        ({"model__executor": "simulated"}, 20),
        ({"kv__dtype": "float32"}, 10),
        ({"model__executor": "simulated", "kv__dtype": "float32"}, 10),
        ({"model__executor": "torch"}, 10),
        ({"model__executor": "torch", "model__dtype": "bfloat16"}, 20),
    ],
)
def test_the_type_of_the_kv_is_that_of_the_executor(
    flags: dict[str, object], num_blocks: int
) -> None:
    assert limits(kv__capacity_bytes=20 * BLOCK_BYTES, **flags).num_blocks == num_blocks


@pytest.mark.parametrize(
    ("flags", "storage"),
    [
        ({}, "F32"), ({}, "BF16"), ({}, "Q8_0"), ({}, "Q4_0"), ({}, "Q4_1"), ({}, "Q5_1"),
        ({"model.quantization": "int8"}, "BF16"),
        ({"model.quantization": "bfloat16"}, "Q8_0"),
        ({"model.quantization": "float32"}, "Q4_1"),
    ],
)  # fmt: skip
def test_the_weights_take_about_what_is_reckoned(flags: dict[str, str], storage: str) -> None:
    pytest.importorskip("headway.kernels._native", reason="the kernels are not built")
    config = tiny_config(
        num_layers=1, hidden_size=1056, intermediate_size=4224, vocab_size=4800, head_dim=48
    )
    checkpoint = replace(CHECKPOINT, config=config, tensors=dummy_tensors(config, storage))
    settings = load_settings(flags={"kv.num_blocks": 1, **flags}).settings
    limits = assembly._scheduler_config(settings, checkpoint).limits
    executor, _ = assembly._executor(settings, checkpoint, limits)
    (layer,) = executor._executor._model._layers
    matrices = [layer.qkv, layer.output, layer.gate_up, layer.down, executor._executor._model.head]
    taken = sum(matrix.num_bytes for matrix in matrices)
    reckoned = assembly._weight_bytes(settings, checkpoint)
    table = checkpoint.tensors["model.embed_tokens.weight"]
    reckoned -= int(prod(table.shape) * assembly._bytes_per_weight(settings, table.format))
    assert 0.6 * reckoned < taken < 1.3 * reckoned  # large pages are filled in part


def test_the_pool_is_never_larger_than_could_be_used() -> None:
    found = limits(scheduler__max_num_seqs=3)
    assert found.num_blocks == 3 * -(-CONFIG.max_position_embeddings // 16)


def test_the_pool_follows_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = assembly._weight_bytes(load_settings().settings, CHECKPOINT)
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


def test_a_file_that_is_no_journal_is_kept_and_another_path_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a journal\n")
    settings = load_settings(flags={"journal.path": str(path)}).settings
    scheduler = assembly._scheduler(assembly._scheduler_config(settings, CHECKPOINT))
    with pytest.raises(JournalError, match=r"choose another path than .*notes.txt"):
        assembly._journal(settings, scheduler)
    assert path.read_text() == "not a journal\n"


def test_what_the_pool_holds_and_where_sequences_end_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert limits(kv__num_blocks=10).longest == 161
    assert "holds 160 tokens, so sequences end at 161" in caplog.text


def test_swap_space_is_counted_in_blocks() -> None:
    assert limits().num_swap_blocks == 0
    assert limits(kv__swap_space_bytes=7 * BLOCK_BYTES + 1).num_swap_blocks == 7
    with pytest.raises(ConfigError, match=r"kv.swap_space_bytes \(5\) is less than one block"):
        limits(kv__swap_space_bytes=5)


def test_swap_space_is_not_free_for_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = assembly._weight_bytes(load_settings().settings, CHECKPOINT)
    monkeypatch.setattr(assembly, "available_memory_bytes", lambda: weights + 20 * BLOCK_BYTES)
    found = limits(kv__memory_utilization=1.0, kv__swap_space_bytes=8 * BLOCK_BYTES)
    assert (found.num_blocks, found.num_swap_blocks) == (12, 8)


def test_modelled_costs_are_those_of_the_executor() -> None:
    flags = {"model.executor": "simulated", "simulation.swap_ms_per_block": 3.0}
    settings = load_settings(flags=flags).settings
    costs = assembly._scheduler_config(settings, CHECKPOINT).costs
    assert costs == StepCosts(swap_block_s=0.003)
    plan = StepPlan(0, (), swap_out=(BlockMove(0, 0),), swap_in=(BlockMove(1, 1),))
    seconds = costs.seconds(StepFeatures.of_plan(plan))
    assert seconds == pytest.approx(costs.base_s + 2 * costs.swap_block_s)
    measured = load_settings(flags={"simulation.step_base_ms": 99.0}).settings
    assert assembly._scheduler_config(measured, CHECKPOINT).costs == StepCosts()


def test_reserved_blocks_must_fit_the_pool() -> None:
    classes = {"live": ClassSettings(reserved_slots=1, reserved_blocks=9), "x": ClassSettings()}
    capacity = {"kv.capacity_bytes": 9 * BLOCK_BYTES}
    settings = replace(load_settings(flags=capacity).settings, classes=classes)
    with pytest.raises(ConfigError, match=r"9 blocks are reserved, and the pool has 9"):
        assembly._scheduler_config(settings, CHECKPOINT)


def test_prefix_sharing_can_be_off() -> None:
    assert limits(kv__prefix_sharing="off").enable_prefix_sharing is False
    assert limits().enable_prefix_sharing is True


def test_reservations_shorten_what_others_can_have() -> None:
    classes = {"live": ClassSettings(reserved_slots=1, reserved_blocks=3), "x": ClassSettings()}
    settings = replace(load_settings(flags={"kv.num_blocks": 9}).settings, classes=classes)
    config = assembly._scheduler_config(settings, CHECKPOINT)
    assert assembly.longest_by_class(config) == {"live": 3 * 16 + 1, "x": 6 * 16 + 1}


@pytest.mark.parametrize(
    ("flags", "computing"),
    [
        (
            {"model.isa": "portable"},
            {"executor": "cpu", "isa": "portable", "weights": "Q4_0+Q8_0", "kv": "bfloat16"},
        ),
        (
            {"model.isa": "portable", "model.quantization": "int8", "kv.dtype": "float32"},
            {"executor": "cpu", "isa": "portable", "weights": "int8", "kv": "float32"},
        ),
        ({"model.executor": "torch"}, {"executor": "torch", "weights": "float32", "kv": "float32"}),
        ({"model.executor": "simulated"}, {"executor": "simulated"}),
    ],
)
def test_what_computes_is_said(flags: dict[str, object], computing: dict[str, str]) -> None:
    needed = {"torch": "torch", "cpu": "headway.kernels._native"}
    if computing["executor"] in needed:
        pytest.importorskip(needed[computing["executor"]])
    checkpoint = replace(tiny_checkpoint(CONFIG), tensors=dummy_tensors(CONFIG, "Q4_0"))
    settings = load_settings(flags=flags).settings
    limits = assembly._scheduler_config(settings, CHECKPOINT).limits
    _, said = assembly._executor(settings, checkpoint, limits)
    assert said == computing
    metrics = EngineMetrics(
        "m", assembly._scheduler(SchedulerConfig(limits=limits)).statistics, said
    )
    (info,) = [
        line for line in metrics.render().decode().splitlines() if line[:13] == "headway_info{"
    ]
    assert all(f'{name}="{choice}"' in info for name, choice in computing.items())


def test_without_kernels_the_fallback_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headway.executors.cpu.has_native_kernels", lambda: False)
    settings = load_settings(flags={"kv.num_blocks": 4}).settings
    limits = assembly._scheduler_config(settings, CHECKPOINT).limits
    _, said = assembly._executor(settings, tiny_checkpoint(CONFIG), limits)
    assert (said["isa"], said["weights"]) == ("numpy", "float32")
    assert "there was no C++ compiler" in caplog.text


def test_an_instruction_set_that_is_not_there_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("headway.kernels._native", reason="the native kernels are not built")
    monkeypatch.setattr("headway.kernels.native_ops.isas", lambda: ["avx2", "portable"])
    settings = load_settings(flags={"model.isa": "avx512", "kv.num_blocks": 4}).settings
    limits = assembly._scheduler_config(settings, CHECKPOINT).limits
    with pytest.raises(ConfigError, match=r"has no instruction set avx512; it has avx2, portable"):
        assembly._executor(settings, CHECKPOINT, limits)


def test_what_is_measured_bare_has_no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_checkpoint", lambda settings, progress: CHECKPOINT)
    settings = load_settings(
        flags={"model.executor": "simulated", "kv.num_blocks": 20, "model.path": "tiny"}
    ).settings
    classes = {"chat": ClassSettings(), "batch": ClassSettings()}
    bare = assembly.assemble_bare(replace(settings, classes=classes), lambda _: None)
    assert [each.name for each in bare.config.classes] == ["default"]
    assert bare.vocab_size == CONFIG.vocab_size
