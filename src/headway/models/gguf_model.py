"""Opens a GGUF file as a checkpoint with Hugging Face names and rotary layout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from headway.errors import ModelError
from headway.models.checkpoint import Checkpoint, StoredTensor, TokenizerAssets
from headway.models.config import ModelConfig
from headway.models.fields import Fields
from headway.models.gguf_config import (
    ROPE_FACTORS,
    end_token_ids,
    generation_config,
    parse_metadata,
)
from headway.models.gguf_file import read_gguf
from headway.models.tensors import BLOCKS, MappedTensor, dequantise

_TOP: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME: Final = re.compile(r"(?:blk\.(0|[1-9]\d*)\.)?(\w+)\.(weight|bias)", re.ASCII)
_ROTATED: Final = re.compile(r"\.self_attn\.([qk])_proj\.")


def open_gguf(path: Path) -> Checkpoint:
    """Open one file; raises ModelError that names it and what is wrong."""
    file = read_gguf(path)
    config = parse_metadata(file)
    tensors = {
        _hugging_face_name(name): tensor
        for name, tensor in file.tensors.items()
        if name != ROPE_FACTORS
    }
    fields = Fields(path, file.metadata)
    return Checkpoint(
        path=path,
        config=config,
        tensors=_as_halves(tensors, config, path) if config.architecture == "llama" else tensors,
        tokenizer=TokenizerAssets(
            gguf_metadata=file.metadata,
            chat_template=fields.string("tokenizer.chat_template", "") or None,
        ),
        generation_config=generation_config(file.metadata),
        eos_token_ids=end_token_ids(fields, config.vocab_size),
    )


def _hugging_face_name(name: str) -> str:
    """Return the Hugging Face name; one that has none stays, for the check to complain about."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, part, kind = match.groups()
    if layer is None:
        return f"{_TOP[part]}.{kind}" if part in _TOP else name
    return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}" if part in _IN_LAYER else name


@dataclass(frozen=True, slots=True, eq=False)
class ReorderedTensor:
    """A stored tensor whose rows are read in another order; ``data`` is a copy in that order."""

    source: MappedTensor
    order: npt.NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape in elements."""
        return self.source.shape

    @property
    def format(self) -> str:
        """Storage format of the source."""
        return self.source.format

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """Stored bytes in the new order; each element of a one-axis tensor counts as a row."""
        rows = self.source.data.reshape(len(self.order), -1)
        return rows[self.order].reshape(self.source.data.shape)

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Dequantise into a new array of ``shape``."""
        return dequantise(self.data, self.format)


def _as_halves(
    tensors: dict[str, MappedTensor], config: ModelConfig, path: Path
) -> dict[str, StoredTensor]:
    """Undo the interleaving that llama.cpp gives the q and k rows of ``llama`` models.

    It rotates neighbours (2i, 2i+1) where Hugging Face rotates i with i + head_dim/2, so its
    converter moves whole rows; quantised blocks lie within a row and move along.
    """
    heads = {"q": config.num_heads, "k": config.num_kv_heads}
    reordered: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        match = _ROTATED.search(name)
        if match is None:
            reordered[name] = tensor
            continue
        count = heads[match[1]]
        whole_elements = len(tensor.shape) > 1 or BLOCKS[tensor.format][0] == 1
        if tensor.shape[0] != count * config.head_dim or not whole_elements:
            raise ModelError(
                f"{path}: tensor {name} has shape {tensor.shape} in {tensor.format}, which does "
                f"not hold {count} heads of {config.head_dim}"
            )
        reordered[name] = ReorderedTensor(tensor, halves_order(count, config.head_dim))
    return reordered


def halves_order(num_heads: int, head_dim: int) -> npt.NDArray[np.intp]:
    """Return, for each row in halves layout, the row of the pairs layout that holds it."""
    pairs = np.arange(num_heads * head_dim, dtype=np.intp).reshape(num_heads, head_dim // 2, 2)
    return pairs.swapaxes(1, 2).reshape(-1)
