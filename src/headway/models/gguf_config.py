"""Reads GGUF metadata into a :class:`ModelConfig`, and what ends a sequence.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from headway.errors import ModelError
from headway.models.config import LinearRopeScaling, ModelConfig, RopeFrequencyFactors
from headway.models.fields import Fields, shown
from headway.models.gguf_file import GGUFFile
from headway.models.hf_config import check_config

ROPE_FACTORS: Final = "rope_freqs.weight"
_EMBEDDING: Final = "token_embd.weight"

_ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")

_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "expert_count": (0,),
    "attention.causal": (True,),
    "attention.scale": (),
    "attention.clamp_kqv": (0.0,),
    "logit_scale": (),
    "residual_scale": (),
    "embedding_scale": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "rope.scaling.attn_factor": (1.0,),
}
"""Settings that change the numbers, and the only values that are implemented."""

_END_TEXTS: Final = frozenset(
    (
        *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"),
        *("<end_of_turn>", "<end_of_utterance>", "<|return|>", "<|call|>", "<|calls|>"),
        *("<|flush|>", "</s>", "<eos>", "[EOS]", "[EOT]", "<EOT>", "_<EOT>"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)
"""Control tokens that end a turn or a document by their name. A GGUF file has room for one id only,
so the others of a model that has several would otherwise be lost. The list is llama.cpp's."""
_MESSAGE_END: Final = "<|end|>"
_TURN_ENDS: Final = (("<|return|>", "<|call|>"), ("<|calls|>", "<|flush|>"))
"""Where a vocabulary has both tokens of a pair, these end the turn and ``<|end|>`` a part of it."""
_CONTROL_TOKEN: Final = 3


def parse_metadata(file: GGUFFile) -> ModelConfig:
    """Return the configuration; raises ModelError for what is missing, odd, or not supported."""
    architecture = _architecture(file)
    fields = Fields(file.path, file.metadata, f"{architecture}.")
    _refuse_unsupported(fields)
    hidden_size, num_heads = (
        fields.integer("embedding_length"),
        fields.integer("attention.head_count"),
    )
    head_dim = _head_dim(fields, hidden_size // num_heads)
    context = fields.integer("context_length")
    config = ModelConfig(
        architecture=architecture,
        vocab_size=_vocab_size(file),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length"),
        num_layers=fields.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=_kv_heads(fields, num_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number("rope.freq_base", 10000.0),
        max_position_embeddings=context,
        tie_word_embeddings="output.weight" not in file.tensors,
        rope_scaling=_rope_scaling(file, fields, head_dim),
        attention_bias=architecture == "qwen2" or "blk.0.attn_q.bias" in file.tensors,
        attention_output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        sliding_window=_sliding_window(fields, architecture, context),
    )
    check_config(config, fields)
    return config


def end_token_ids(fields: Fields, vocab_size: int) -> tuple[int, ...]:
    """Return every id that ends a sequence: stated ones, and control tokens known by their text."""
    stated = ("eos_token_id", "eot_token_id", "eom_token_id", "eog_token_ids")
    ids = {i for key in stated for i in fields.token_ids(f"tokenizer.ggml.{key}", vocab_size)}
    tokens = fields.get("tokenizer.ggml.tokens") or []
    kinds = fields.get("tokenizer.ggml.token_type") or []
    if not isinstance(tokens, list) or not isinstance(kinds, list):
        raise ModelError(f"{fields.path}: the token list is damaged")
    named = {
        token: i
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == _CONTROL_TOKEN and isinstance(token, str) and token in _END_TEXTS
    }
    if any(named.keys() >= set(pair) for pair in _TURN_ENDS):
        named.pop(_MESSAGE_END, None)
    return tuple(sorted(ids.union(named.values())))


def generation_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file's sampling defaults under the names of ``generation_config.json``."""
    names = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
    found = {name: metadata.get(f"general.sampling.{key}") for key, name in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _architecture(file: GGUFFile) -> str:
    fields = Fields(file.path, file.metadata, "general.")
    architecture = fields.string("architecture")
    if architecture not in _ARCHITECTURES:
        raise fields.fail(
            "architecture", f"is {shown(architecture)}; supported are {', '.join(_ARCHITECTURES)}"
        )
    kind = fields.string("type", "model")
    if kind != "model":
        raise fields.fail("type", f"is {shown(kind)}; only a whole model can be served")
    parts = file.metadata.get("split.count", 0)
    if parts not in (0, 1):
        raise ModelError(f"{file.path}: one of {shown(parts)} split files; merge them first")
    return architecture


def _refuse_unsupported(fields: Fields) -> None:
    for key, allowed in _NEUTRAL.items():
        value = fields.get(key)
        if value is not None and value not in allowed:
            raise fields.fail(key, f"is {shown(value)}, which is not supported")


def _vocab_size(file: GGUFFile) -> int:
    """Return the rows of the embedding, of which there must be one for each token."""
    embedding = file.tensors.get(_EMBEDDING)
    if embedding is None:
        raise ModelError(f"{file.path}: tensor {_EMBEDDING} is missing")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise ModelError(f"{file.path}: tokenizer.ggml.tokens is missing or damaged")
    rows = embedding.shape[0]
    if len(tokens) > rows:
        raise ModelError(
            f"{file.path}: {len(tokens)} tokens, but {_EMBEDDING} has only {rows} rows"
        )
    return rows


def _kv_heads(fields: Fields, num_heads: int) -> int:
    """Return the number of key-value heads; one for each layer is accepted when all agree."""
    value = fields.get("attention.head_count_kv")
    if isinstance(value, list):
        if len(set(map(str, value))) != 1:
            raise fields.fail("attention.head_count_kv", "differs between layers: not supported")
        fields = Fields(fields.path, {"attention.head_count_kv": value[0]})
    return fields.integer("attention.head_count_kv", num_heads)


def _head_dim(fields: Fields, default: int) -> int:
    head_dim = fields.integer("attention.key_length", default)
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(key, head_dim) != head_dim:
            raise fields.fail(
                key, f"is {fields.get(key)}; only {head_dim}, as of keys, is supported"
            )
    return head_dim


def _sliding_window(fields: Fields, architecture: str, context: int) -> int | None:
    """Return the window of a Mistral, which is a ``llama`` here; a Qwen has it on some layers."""
    window = fields.integer("attention.sliding_window", 0, minimum=0)
    if window in (0, context) or window > context:
        return None
    if architecture != "llama":
        raise fields.fail("attention.sliding_window", f"is {window}, which is not supported")
    return window


def _rope_scaling(
    file: GGUFFile, fields: Fields, head_dim: int
) -> LinearRopeScaling | RopeFrequencyFactors | None:
    linear = _linear_scaling(fields)
    if ROPE_FACTORS not in file.tensors:
        return linear
    if linear is not None:
        raise ModelError(f"{file.path}: {ROPE_FACTORS} beside linear rope scaling: not supported")
    tensor = file.tensors[ROPE_FACTORS]
    if tensor.shape != (head_dim // 2,):
        raise ModelError(f"{file.path}: {ROPE_FACTORS} has the wrong shape {shown(tensor.shape)}")
    factors = tensor.to_float32()
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise ModelError(f"{file.path}: {ROPE_FACTORS} has a factor that is not above zero")
    return RopeFrequencyFactors(factors=tuple(factors.tolist()))


def _linear_scaling(fields: Fields) -> LinearRopeScaling | None:
    old = fields.number("rope.scale_linear", 1.0)
    kind = fields.string("rope.scaling.type", "none" if old == 1.0 else "linear")
    if kind == "none":
        return None
    if kind != "linear":
        raise fields.fail("rope.scaling.type", f"is {shown(kind)}; supported: none, linear")
    factor = fields.number("rope.scaling.factor", old)
    return None if factor == 1.0 else LinearRopeScaling(factor=factor)
