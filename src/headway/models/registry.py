"""Which model code computes which architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headway.errors import ModelError
from headway.kernels.ops import Matrix, Ops, Step, Tensor
from headway.models.checkpoint import Checkpoint
from headway.models.llama import Llama

MODELS: Final[Mapping[str, type[Llama[Any, Any, Any]]]] = {
    "llama": Llama,
    "mistral": Llama,
    "qwen2": Llama,
    "qwen3": Llama,
}
"""Model code by ``ModelConfig.architecture``."""


def build_model(
    checkpoint: Checkpoint, ops: Ops[Tensor, Matrix, Step]
) -> Llama[Tensor, Matrix, Step]:
    """Load the weights of a checkpoint into the model code of its architecture.

    Raises:
        ModelError: no code computes this architecture.
    """
    config = checkpoint.config
    model = MODELS.get(config.architecture)
    if model is None:
        raise ModelError(
            f"{checkpoint.path}: architecture {config.architecture} is not supported; "
            f"supported are {', '.join(MODELS)}"
        )
    return model(config, checkpoint.tensors, ops)
