"""The embedded default: a model on an ordinary machine, by kernels in C++.

Where the package was installed without a C++ compiler there are no kernels; then NumPy computes,
slowly, and a warning says so.
"""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from headway.core.plan import StepPlan, StepResult
from headway.errors import ConfigError
from headway.executors.model import ModelExecutor
from headway.executors.picking import Picker
from headway.models.checkpoint import Checkpoint

if TYPE_CHECKING:
    from headway.kernels.native_ops import NativeOps
    from headway.kernels.numpy_ops import NumpyOps

Quantization = Literal["auto", "float32", "bfloat16", "int8"]
KvDtype = Literal["bfloat16", "int8", "float32"]

_QUANTIZATIONS: Final = ("auto", "float32", "bfloat16", "int8")
_KV_DTYPES: Final = ("bfloat16", "int8", "float32")

_LARGEST: Final = 2**31 - 2

_MAX_PASS_ROWS: Final = 256
"""What the layers compute for so many rows stays in the caches of the processors of today."""

_log = logging.getLogger(__name__)


class CpuExecutor:
    """Implements :class:`headway.core.ports.Executor`.

    Logits, and so tokens, have the same bits alone or in any batch, padded or not, whole or in any
    chunks, after preemption by either mode, and for every number of threads: see
    :mod:`headway.kernels.native_ops`.

    Args:
        checkpoint: the opened model; its weights are read here.
        num_blocks: blocks of the KV pool.
        block_size: positions a block; whole multiples of 16 are fast.
        num_swap_blocks: blocks of the swap space.
        quantization: the precision of the weights; ``auto`` keeps the file's own.
        kv_dtype: of the KV pool.
        num_threads: None for one a core that this process may use.
        isa: the instruction set; ``auto`` takes the best that the processor has.

    Raises:
        ConfigError: a number is out of range, or a name is unknown or not there.
        ModelError: no code computes this architecture, or this shape of it.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int = 0,
        quantization: Quantization = "auto",
        kv_dtype: KvDtype = "bfloat16",
        num_threads: int | None = None,
        isa: str = "auto",
    ) -> None:
        _check_choice("quantization", quantization, _QUANTIZATIONS)
        _check_choice("kv_dtype", kv_dtype, _KV_DTYPES)
        if min(num_blocks, block_size, 1 if num_threads is None else num_threads) < 1:
            raise ConfigError("num_blocks, block_size and num_threads must be at least 1")
        if num_swap_blocks < 0:
            raise ConfigError(f"num_swap_blocks must be at least 0, not {num_swap_blocks}")
        if max(num_blocks, block_size, num_swap_blocks, num_threads or 1) > _LARGEST:
            raise ConfigError(
                "num_blocks, block_size, num_swap_blocks and num_threads must be at most "
                f"{_LARGEST}"
            )
        pool = {
            "num_blocks": num_blocks,
            "block_size": block_size,
            "num_swap_blocks": num_swap_blocks,
        }
        ops: NativeOps | NumpyOps
        picker: Picker | None = None
        if has_native_kernels():
            threads = num_threads or usable_cores()
            ops = native = _native_ops(checkpoint, pool, quantization, kv_dtype, threads, isa)
            picker = native.core
        else:
            ops = _numpy_ops(checkpoint, pool, quantization, kv_dtype, isa)
        self.ops = ops
        self.isa = ops.isa
        self._executor = ModelExecutor[Any, Any, Any](
            checkpoint, ops, **pool, picker=picker, max_pass_rows=_MAX_PASS_ROWS
        )

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step.

        Raises:
            ValueError: the plan names a sequence, block or position that does not exist, or its
                padding does not cover its slices. The KV pool and the swap space are as they were.
        """
        return self._executor.run(plan)

    def make_resident(self) -> None:
        """Take the memory of the whole KV pool from the system, before any step.

        Without it steps that are the first to use a part of the pool may have to wait for that:
        all is taken ahead of its use, but on a busy machine not far enough.
        """
        self.ops.make_resident()


def has_native_kernels() -> bool:
    """Say whether the package was built with its kernels."""
    return find_spec("headway.kernels._native") is not None


def usable_cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} {value} is not one of {', '.join(known)}")


def _native_ops(
    checkpoint: Checkpoint,
    pool: dict[str, int],
    quantization: Quantization,
    kv_dtype: KvDtype,
    num_threads: int,
    isa: str,
) -> NativeOps:
    from headway.kernels.native_ops import NativeOps, isas

    if isa != "auto" and isa not in isas():
        raise ConfigError(
            f"this processor or build has no instruction set {isa}; it has {', '.join(isas())}"
        )
    try:
        return NativeOps(
            checkpoint.config,
            **pool,
            quantization=quantization,
            kv_dtype=kv_dtype,
            num_threads=num_threads,
            isa=isa,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except MemoryError as error:
        raise ConfigError(
            f"no memory for a KV cache of {pool['num_blocks']} blocks of {pool['block_size']} "
            f"positions in {kv_dtype} and {pool['num_swap_blocks']} blocks to swap to"
        ) from error
    except RuntimeError as error:  # of the system
        raise ConfigError(f"{num_threads} threads can't be started: {error}") from error


def _numpy_ops(
    checkpoint: Checkpoint,
    pool: dict[str, int],
    quantization: Quantization,
    kv_dtype: KvDtype,
    isa: str,
) -> NumpyOps:
    from headway.kernels.numpy_ops import NumpyOps

    if quantization not in ("auto", "float32") or isa != "auto":
        raise ConfigError(
            "this installation has no native kernels, so weights are float32 (or auto) and "
            "there is no instruction set to choose; install a C++ compiler and then headway again"
        )
    _log.warning(
        "this installation has no native kernels, since there was no C++ compiler: "
        "the portable fallback in NumPy computes, which is slow"
    )
    return NumpyOps(checkpoint.config, **pool, kv_dtype=kv_dtype)
