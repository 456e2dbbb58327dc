"""The executor on torch CPU: the readable reference that defines the truth."""

from __future__ import annotations

import torch

from headway.core.plan import StepPlan, StepResult
from headway.errors import ConfigError
from headway.executors.model import ModelExecutor
from headway.kernels.torch_linear import TorchMatrix
from headway.kernels.torch_ops import DTYPES, Dtype, TorchOps, TorchStep
from headway.models.checkpoint import Checkpoint


class TorchExecutor:
    """Implements :class:`headway.core.ports.Executor`.

    Logits, and so tokens, have the same bits alone or in any batch, padded or not, whole or in any
    chunks, after preemption by either mode, and for every number of threads: see
    :mod:`headway.kernels.torch_ops`.

    Args:
        checkpoint: the opened model; its weights are read here.
        num_blocks: blocks of the KV pool.
        block_size: positions a block.
        num_swap_blocks: blocks of the swap space.
        dtype: of weights and KV pool.
        num_threads: for the whole process; None leaves torch's setting.

    Raises:
        ConfigError: a number is out of range, or the dtype is unknown.
        ModelError: no code computes this architecture.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int = 0,
        dtype: Dtype = "float32",
        num_threads: int | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"dtype {dtype} is not one of {', '.join(DTYPES)}")
        if min(num_blocks, block_size, 1 if num_threads is None else num_threads) < 1:
            raise ConfigError("num_blocks, block_size and num_threads must be at least 1")
        if num_swap_blocks < 0:
            raise ConfigError(f"num_swap_blocks must be at least 0, not {num_swap_blocks}")
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        with torch.inference_mode():
            ops = TorchOps(
                checkpoint.config,
                num_blocks=num_blocks,
                num_swap_blocks=num_swap_blocks,
                block_size=block_size,
                dtype=dtype,
            )
            self._executor = ModelExecutor[torch.Tensor, TorchMatrix, TorchStep](
                checkpoint,
                ops,
                num_blocks=num_blocks,
                num_swap_blocks=num_swap_blocks,
                block_size=block_size,
            )

    def run(self, plan: StepPlan) -> StepResult:
        """Compute one step.

        Raises:
            ValueError: the plan names a sequence, block or position that does not exist, or its
                padding does not cover its slices. The KV pool and the swap space are as they were.
        """
        with torch.inference_mode():
            return self._executor.run(plan)
