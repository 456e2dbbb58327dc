"""Writes a shape with random weights as a GGUF file in BF16, from which llama.cpp quantises.

The tokenizer is that of the default model, filled up with tokens that no text contains. The rows of
q and k are not brought into llama.cpp's order: another order of random rows is as random.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

from benchmarks.peers.shapes import SMOLLM2, Shape
from benchmarks.peers.weights import catalogued_file, model_config, tensors, to_bfloat16
from headway.models.loading import open_checkpoint

_TOP: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
_IN_LAYER: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_UNUSED: Final = 5  # llama.cpp's type of a token that is never used


def write_random_gguf(shape: Shape, path: Path) -> None:
    config = model_config(shape)
    writer = gguf.GGUFWriter(path, config.architecture)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, config.vocab_size)
    _add_tensors(writer, shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, vocab_size: int) -> None:
    metadata = open_checkpoint(catalogued_file(SMOLLM2)).tokenizer.gguf_metadata
    assert metadata is not None, "the default model is a GGUF file"
    known: Mapping[str, Any] = metadata
    texts, kinds = known["tokenizer.ggml.tokens"], known["tokenizer.ggml.token_type"]
    unused = [f"<|unused-{i}|>" for i in range(vocab_size - len(texts))]
    writer.add_tokenizer_model(known["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(known["tokenizer.ggml.pre"])
    writer.add_token_list([*texts, *unused])
    writer.add_token_types([*kinds, *(_UNUSED for _ in unused)])
    writer.add_token_merges(known["tokenizer.ggml.merges"])
    writer.add_bos_token_id(known["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(known["tokenizer.ggml.eos_token_id"])
    writer.add_add_bos_token(False)


def _add_tensors(writer: Any, shape: Shape) -> None:
    for name, values in tensors(shape):
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
            continue
        rows = to_bfloat16(values).view(np.uint8)
        kind = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(gguf_name(name), rows, raw_dtype=kind)


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of a tensor; raises KeyError where there is none."""
    stem, _, kind = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_IN_LAYER[part]}.{kind}"
