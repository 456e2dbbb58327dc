"""Small model files for the tests of ``headway.models``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from safetensors.numpy import save_file

VOCAB, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 48, 64, 96, 2, 4, 2, 16

TOKENS = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(VOCAB - 3))]

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
}

TOKENIZER: dict[str, Any] = {
    "added_tokens": [{"id": 2, "content": "</s>"}],
    "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(TOKENS)}, "merges": []},
}

Arrays = dict[str, npt.NDArray[Any]]


def hf_tensors(seed: int = 0) -> Arrays:
    """Random weights of the model of CONFIG under Hugging Face names."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        for name, shape in {
            "input_layernorm": (HIDDEN,),
            "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            "post_attention_layernorm": (HIDDEN,),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def write_directory(
    path: Path,
    *,
    tensors: Arrays | None = None,
    config: Mapping[str, Any] | None = None,
    **files: Mapping[str, Any] | str,
) -> Path:
    """Write a Hugging Face directory. ``files``: further JSON files by stem."""
    path.mkdir(parents=True, exist_ok=True)
    save_file(hf_tensors() if tensors is None else tensors, path / "model.safetensors")
    merged = {k: v for k, v in {**CONFIG, **(config or {})}.items() if v is not ...}
    (path / "config.json").write_text(json.dumps(merged))
    (path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    for stem, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / f"{stem}.json").write_text(text)
    return path


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The name that llama.cpp gives a Hugging Face tensor."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        layer, part = stem.removeprefix("model.layers.").split(".", 1)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def llama_cpp_permute(weights: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """What llama.cpp's converter does to the rows of q and k of a llama model."""
    split = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return split.swapaxes(1, 2).reshape(weights.shape)


def llama_fields(architecture: str = "llama") -> dict[str, Any]:
    """Metadata of the model of CONFIG."""
    return {
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 512,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": INNER,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.eos_token_id": 2,
    }


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    fields: Mapping[str, Any] | None = None,
    tensors: Arrays | None = None,
    kinds: Mapping[str, GGMLQuantizationType] | None = None,
) -> Path:
    """Write a GGUF file of Hugging Face tensors as llama.cpp's converter would.

    ``kinds`` gives the storage of some tensors, whose arrays then hold the stored bytes. A field
    that is ``...`` is left out.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**llama_fields(architecture), **(fields or {})}.items():
        if value is not ...:
            _add_field(writer, key, value)
    heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV_HEADS}
    for name, array in (hf_tensors() if tensors is None else tensors).items():
        for part, count in heads.items():
            if architecture == "llama" and part in name:
                array = llama_cpp_permute(array, count)
        stored_as = name if name == "rope_freqs.weight" else gguf_name(name)
        writer.add_tensor(stored_as, array, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_field(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def random_blocks(rows: int, columns: int, kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """Random stored bytes whose half-precision scales are finite, whatever the format."""
    block, size = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(int(kind))
    # No byte above 0x77: read as the high byte of a float16, it is never an infinity or a NaN.
    return rng.integers(0, 0x78, (rows, columns // block * size), dtype=np.uint8)
