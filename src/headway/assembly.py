"""Builds an engine from settings: the one place that knows every part.

Servers, the command line and :class:`headway.llm.LLM` all start here.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headway.config import Settings
from headway.config.scheduling import scheduler_config, simulated_costs
from headway.core.config import SchedulerConfig
from headway.core.limits import SchedulerLimits
from headway.core.ports import Executor
from headway.core.scheduler import Scheduler
from headway.engine.aio import AsyncEngine
from headway.engine.clock import RealClock
from headway.engine.journal import Journal
from headway.engine.loop import Engine
from headway.errors import ConfigError, JournalError
from headway.executors.simulated import SimulatedExecutor
from headway.generation.generator import Generator
from headway.metrics.engine import EngineMetrics
from headway.models.catalog import CATALOG, resolve
from headway.models.checkpoint import Checkpoint
from headway.models.config import ModelConfig
from headway.models.loading import open_checkpoint, open_dummy
from headway.text.chat_template import ChatTemplate, load_chat_template
from headway.text.loading import load_tokenizer
from headway.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headway.sim.kept_profile import ProfileKeeper

_log = logging.getLogger(__name__)

_BYTES_PER_ELEMENT = {"float32": 4, "bfloat16": 2}
_BYTES_AS_STORED = {"F32": 4, "F16": 2, "BF16": 2, "Q4_0": 0.75, "Q4_1": 0.75, "Q4_K": 0.75}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A model ready to serve; ``engine`` is not started yet.

    ``computing`` says what computes, and in which precision, for people and metrics. ``keeper``
    keeps a profile current, and is closed after the engine.
    """

    name: str
    settings: Settings
    checkpoint: Checkpoint
    engine: AsyncEngine
    generator: Generator
    metrics: EngineMetrics
    computing: Mapping[str, str]
    keeper: ProfileKeeper | None


def assemble(settings: Settings, progress: Callable[[str], None]) -> Assembly:
    """Find, open and load the model, and build everything around it.

    Raises:
        UsageError: the model or the settings can't be used; the message says what to change.
    """
    checkpoint = _checkpoint(settings, progress)
    tokenizer, template = _text(checkpoint, settings)
    config = _scheduler_config(settings, checkpoint)
    limits = config.limits
    scheduler = _scheduler(config)
    name = _served_name(settings)
    executor, computing = _executor(settings, checkpoint, limits)
    metrics = EngineMetrics(name, scheduler.statistics, computing)
    keeper = _keeper(settings, executor, name)
    # the journal comes last, so that a start that fails leaves none behind
    journal = _journal(settings, scheduler)
    engine = Engine(
        scheduler, keeper or executor, RealClock(), journal=journal, observers=[metrics]
    )
    front = AsyncEngine(engine, max_buffered_events=settings.server.max_buffered_events)
    generator = Generator(
        engine=front,
        tokenizer=tokenizer,
        chat_template=template,
        eos_token_ids=checkpoint.eos_token_ids,
        generation_defaults={**_advised(settings), **checkpoint.generation_config},
        vocab_size=checkpoint.config.vocab_size,
        max_model_len=limits.longest,
        model_context=checkpoint.config.max_position_embeddings,
        base_seed=settings.model.seed,
        default_class=settings.default_class,
        longest_by_class=longest_by_class(config),
        isolates_tenants=settings.kv.prefix_sharing == "tenant",
    )
    return Assembly(
        name=name,
        settings=settings,
        checkpoint=checkpoint,
        engine=front,
        generator=generator,
        metrics=metrics,
        computing=computing,
        keeper=keeper,
    )


def _checkpoint(settings: Settings, progress: Callable[[str], None]) -> Checkpoint:
    model = settings.model
    if model.load_format != "dummy":
        return open_checkpoint(resolve(model.path, progress))
    checkpoint = open_dummy(Path(model.path), model.dummy_format)
    _log.warning('the weights are random (model.load_format = "dummy"): answers mean nothing')
    return checkpoint


def _served_name(settings: Settings) -> str:
    """Return the model's name in the API: unless set, the end of its path, without ``.gguf``."""
    model = settings.model
    return model.served_name or Path(model.path).name.removesuffix(".gguf") or model.path


def _advised(settings: Settings) -> Mapping[str, float]:
    """Return the sampling that a known model's authors advise; a model's own file wins."""
    entry = CATALOG.get(settings.model.path)
    return entry.generation_defaults if entry else {}


# -------------------------------------------------------------------- text


def _text(checkpoint: Checkpoint, settings: Settings) -> tuple[Tokenizer, ChatTemplate]:
    assets = checkpoint.tokenizer
    tokenizer = load_tokenizer(
        assets.tokenizer_json,
        assets.tokenizer_config,
        assets.gguf_metadata,
        model_vocab_size=checkpoint.config.vocab_size,
    )
    source = assets.chat_template
    if settings.model.chat_template is not None:
        source = _read_template(Path(settings.model.chat_template))
    return tokenizer, load_chat_template(source, tokenizer.bos_token, tokenizer.eos_token)


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the chat template {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"the chat template {path} is not UTF-8 text") from None


# -------------------------------------------------------------------- scheduler


def _scheduler(config: SchedulerConfig) -> Scheduler:
    try:
        return Scheduler(config)
    except ValueError as error:
        raise ConfigError(f"[scheduler] {error}") from error


def scheduler_config_of(settings: Settings, progress: Callable[[str], None]) -> SchedulerConfig:
    """Return how the scheduler of these settings is set up, without loading the model.

    Raises:
        UsageError: the model or the settings can't be used; the message says what to change.
    """
    checkpoint = _checkpoint(settings, progress)
    return _scheduler_config(settings, checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """What computes, and how its scheduler is set up, with nothing around them, and no classes."""

    name: str
    executor: Executor
    config: SchedulerConfig
    vocab_size: int


@runtime_checkable
class HasMemory(Protocol):
    """An executor whose KV pool is memory of this machine, which comes when it is first used."""

    def make_resident(self) -> None:
        """Take all of it from the system, before any step."""
        ...


def assemble_bare(settings: Settings, progress: Callable[[str], None]) -> Bare:
    """Find, open and load the model, to measure it: with all its memory, for which no step waits.

    Raises:
        UsageError: the model or the settings can't be used; the message says what to change.
    """
    settings = replace(settings, classes={}, tenants={})
    checkpoint = _checkpoint(settings, progress)
    config = _scheduler_config(settings, checkpoint)
    executor, _ = _executor(settings, checkpoint, config.limits)
    if isinstance(executor, HasMemory):
        progress("Taking the memory of the whole KV pool from the system")
        executor.make_resident()
    return Bare(
        name=_served_name(settings),
        executor=executor,
        config=config,
        vocab_size=checkpoint.config.vocab_size,
    )


def _scheduler_config(settings: Settings, checkpoint: Checkpoint) -> SchedulerConfig:
    max_model_len = _max_model_len(settings, checkpoint.config)
    num_blocks = _num_blocks(settings, checkpoint, max_model_len)
    num_kv_tokens = num_blocks * settings.kv.block_size
    if num_kv_tokens + 1 < max_model_len:
        _log.warning(
            "the KV cache holds %d tokens, so sequences end at %d (the last token needs no KV); "
            "without that limit they would at %d",
            num_kv_tokens,
            num_kv_tokens + 1,
            max_model_len,
        )
    return scheduler_config(
        settings,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        num_swap_blocks=_num_swap_blocks(settings, checkpoint.config),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """What the number of KV blocks is worked out from, in bytes.

    Attributes:
        config: of the model.
        max_model_len: longest sequence, in tokens.
        num_blocks: that the server would have.
        block_bytes: of a block.
        available_bytes: memory that can be had now.
        other_bytes: taken before the blocks: weights and swap space.
    """

    config: ModelConfig
    max_model_len: int
    num_blocks: int
    block_bytes: int
    available_bytes: int
    other_bytes: int


def memory_of(settings: Settings, progress: Callable[[str], None]) -> MemoryFacts:
    """Return the memory that the model of these settings would have here, without loading it.

    Raises:
        UsageError: the model or the settings can't be used; the message says what to change.
    """
    checkpoint = _checkpoint(settings, progress)
    config = checkpoint.config
    max_model_len = _max_model_len(settings, config)
    return MemoryFacts(
        config=config,
        max_model_len=max_model_len,
        num_blocks=_num_blocks(settings, checkpoint, max_model_len),
        block_bytes=kv_bytes_per_block(config, settings.kv.block_size, _kv_dtype(settings)),
        available_bytes=available_memory_bytes(),
        other_bytes=_other_bytes(settings, checkpoint),
    )


def longest_by_class(config: SchedulerConfig) -> Mapping[str, int]:
    """Return the longest sequence of each class; with reservations nobody has the whole pool."""
    limits = config.limits
    num_positions = {c.name: config.num_blocks_for(c) * limits.block_size for c in config.classes}
    return {name: min(limits.max_model_len, most + 1) for name, most in num_positions.items()}


def _max_model_len(settings: Settings, config: ModelConfig) -> int:
    wanted = settings.model.max_model_len
    longest = config.max_position_embeddings
    if wanted is not None and wanted > longest:
        raise ConfigError(
            f"model.max_model_len ({wanted}) is beyond the model's context of {longest} tokens"
        )
    return wanted or longest


def _num_blocks(settings: Settings, checkpoint: Checkpoint, max_model_len: int) -> int:
    """Return how many KV blocks to have: as set, as fits, or as could ever be used."""
    kv = settings.kv
    if kv.num_blocks is not None:
        return kv.num_blocks
    num_bytes = kv_bytes_per_block(checkpoint.config, kv.block_size, _kv_dtype(settings))
    if kv.capacity_bytes is not None:
        if kv.capacity_bytes < num_bytes:
            raise ConfigError(
                f"kv.capacity_bytes ({kv.capacity_bytes}) is less than one block ({num_bytes})"
            )
        return kv.capacity_bytes // num_bytes
    free = max(available_memory_bytes() - _other_bytes(settings, checkpoint), 0)
    most_useful = settings.scheduler.max_num_seqs * -(-max_model_len // kv.block_size)
    num_blocks = min(int(kv.memory_utilization * free) // num_bytes, most_useful)
    if num_blocks < 1:
        raise ConfigError(
            f"{free} bytes of memory are left beside the weights and the swap space, and "
            f"kv.memory_utilization ({kv.memory_utilization}) of that holds no KV block"
        )
    return num_blocks


def _num_swap_blocks(settings: Settings, config: ModelConfig) -> int:
    wanted = settings.kv.swap_space_bytes
    num_bytes = kv_bytes_per_block(config, settings.kv.block_size, _kv_dtype(settings))
    if 0 < wanted < num_bytes:
        raise ConfigError(f"kv.swap_space_bytes ({wanted}) is less than one block ({num_bytes})")
    return wanted // num_bytes


def _kv_dtype(settings: Settings) -> str:
    if settings.model.executor == "torch":
        return settings.model.dtype or "float32"
    return settings.kv.dtype or "bfloat16"


def kv_bytes_per_block(config: ModelConfig, block_size: int, dtype: str) -> int:
    """Return the bytes of one block: keys and values of ``block_size`` positions, all layers."""
    width = config.head_dim
    # With int8, each head of a position has a float32 scale.
    per_head = width + 4 if dtype == "int8" else width * _BYTES_PER_ELEMENT[dtype]
    return 2 * config.num_layers * config.num_kv_heads * block_size * per_head


def _other_bytes(settings: Settings, checkpoint: Checkpoint) -> int:
    """Return about how many bytes are taken before the pool; a simulated engine has neither."""
    if settings.model.executor == "simulated":
        return 0
    return _weight_bytes(settings, checkpoint) + settings.kv.swap_space_bytes


def _weight_bytes(settings: Settings, checkpoint: Checkpoint) -> int:
    """Return about how many bytes the weights take in memory."""
    tensors = checkpoint.tensors.values()
    return int(sum(prod(t.shape) * _bytes_per_weight(settings, t.format) for t in tensors))


def _bytes_per_weight(settings: Settings, storage: str) -> float:
    """Return at most how many bytes the executor takes for a weight of a storage format."""
    model = settings.model
    if model.executor == "torch":
        return _BYTES_PER_ELEMENT[model.dtype or "float32"]
    from headway.executors.cpu import has_native_kernels

    if model.quantization == "float32" or not has_native_kernels():
        return 4
    if model.quantization == "bfloat16":
        return 2
    if model.quantization == "int8":
        return 1.125  # a float32 scale for 256 inputs, or for all, of which there may be 32
    return _BYTES_AS_STORED.get(storage, 1.25)  # with two float32 scales for each 32


def available_memory_bytes() -> int:
    """Return the memory that can be had without swapping, within the limits of a container."""
    return min(_machine_memory_bytes(), _container_memory_bytes())


def _machine_memory_bytes() -> int:
    """Return the available memory; where the system does not tell, all that there is."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        _log.debug("this system has no /proc/meminfo")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_memory_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return what the control group (version 2) leaves; without one, no limit at all."""
    try:
        most = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return sys.maxsize
    return sys.maxsize if most == "max" else max(int(most) - used, 0)


def _journal(settings: Settings, scheduler: Scheduler) -> Journal | None:
    path = settings.journal.path
    if path is None:
        return None
    try:
        return Journal.open(Path(path), scheduler)
    except JournalError as error:
        hint = f"choose another path than {path}: what exists must be a journal of this version"
        raise JournalError(f"{error}; {hint}") from error


def machine_name(model: str, settings: Settings) -> str:
    """Return what a profile of this model on this machine is called."""
    machine = platform.processor() or platform.machine()
    return f"{model}, {settings.model.executor} executor, {machine}"


def _keeper(settings: Settings, executor: Executor, name: str) -> ProfileKeeper | None:
    kept = settings.profile
    if kept.path is None:
        return None
    from headway.sim.kept_profile import EVERY_S, ProfileKeeper

    return ProfileKeeper(
        executor,
        RealClock().now,
        Path(kept.path),
        name=machine_name(name, settings),
        every_s=kept.every_s or EVERY_S,
    )


# -------------------------------------------------------------------- executors


_Made = tuple[Executor, dict[str, str]]


def _executor(settings: Settings, checkpoint: Checkpoint, limits: SchedulerLimits) -> _Made:
    """Make the executor, and say what is chosen in it, by name."""
    name = settings.model.executor
    executor, chosen = _EXECUTORS[name](settings, checkpoint, limits)
    return executor, {"executor": name, **chosen}


def _torch_executor(settings: Settings, checkpoint: Checkpoint, limits: SchedulerLimits) -> _Made:
    from headway.kernels.openmp import spin_briefly

    spin_briefly()
    try:
        from headway.executors.torch import TorchExecutor
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError("the torch executor needs torch: pip install torch") from error
    dtype = settings.model.dtype or "float32"
    executor = TorchExecutor(
        checkpoint,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        num_swap_blocks=limits.num_swap_blocks,
        dtype=dtype,
        num_threads=settings.model.num_threads,
    )
    return executor, {"weights": dtype, "kv": dtype}


def _cpu_executor(settings: Settings, checkpoint: Checkpoint, limits: SchedulerLimits) -> _Made:
    from headway.executors.cpu import CpuExecutor

    kv_dtype = settings.kv.dtype or "bfloat16"
    quantization = settings.model.quantization
    executor = CpuExecutor(
        checkpoint,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        num_swap_blocks=limits.num_swap_blocks,
        quantization=quantization,
        kv_dtype=kv_dtype,
        num_threads=settings.model.num_threads,
        isa=settings.model.isa,
    )
    weights = _formats(checkpoint) if quantization == "auto" else quantization
    if executor.isa == "numpy":
        weights = "float32"
    return executor, {"isa": executor.isa, "weights": weights, "kv": kv_dtype}


def _formats(checkpoint: Checkpoint) -> str:
    """Return the storage formats of the matrices, the commonest first."""
    sizes = Counter[str]()
    for tensor in checkpoint.tensors.values():
        if len(tensor.shape) > 1:
            sizes[tensor.format] += prod(tensor.shape)
    return "+".join(name for name, _ in sizes.most_common())


def _simulated_executor(
    settings: Settings, checkpoint: Checkpoint, limits: SchedulerLimits
) -> _Made:
    executor = SimulatedExecutor(
        simulated_costs(settings.simulation),
        RealClock(),
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        num_swap_blocks=limits.num_swap_blocks,
        vocab_size=checkpoint.config.vocab_size,
    )
    return executor, {}


_EXECUTORS: Mapping[str, Callable[[Settings, Checkpoint, SchedulerLimits], _Made]] = {
    "torch": _torch_executor,
    "cpu": _cpu_executor,
    "simulated": _simulated_executor,
}
