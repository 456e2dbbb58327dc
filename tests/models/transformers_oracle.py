"""The embedded default model as Hugging Face ``transformers`` computes it in float32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers


def smollm2_by_transformers(path: Path) -> Any:
    """Read the same file, by the library's own GGUF reader.

    Not by ``from_pretrained``, which would ask for yet another package.
    """
    from transformers import modeling_gguf_pytorch_utils

    load: Any = modeling_gguf_pytorch_utils.load_gguf_checkpoint
    fields = load(str(path))["config"]
    assert fields.pop("model_type") == "llama"
    rope = {"rope_type": "default", "rope_theta": fields.pop("rope_theta")}
    config = transformers.LlamaConfig(**fields, rope_parameters=rope)
    with torch.device("meta"):
        shapes = transformers.LlamaForCausalLM(config)
    read = load(str(path), return_tensors=True, model_to_load=shapes)
    model = transformers.LlamaForCausalLM(config)
    missing = model.load_state_dict(read["tensors"], strict=False)
    assert missing.missing_keys == ["lm_head.weight"]  # tied
    assert not missing.unexpected_keys
    return model.eval()


def oracle_logits(model: Any, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        logits: npt.NDArray[np.float32] = model(torch.tensor([token_ids])).logits[0].numpy()
    return logits
