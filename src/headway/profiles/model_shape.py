"""The sizes of a model that decide what a step computes and moves, from its ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.profiles.errors import ProfileError


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How the matrices of the layers are stored, and in which type they are multiplied.

    Embeddings and the head of the model stay in 16 bits in all formats here, as they do in
    published models.
    """

    name: str
    bits: float
    computes_in: str


#: scales and zero points of groups of 128 take 0.25 bits a weight, one scale a channel takes none
WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    each.name: each
    for each in (
        WeightFormat(name="fp32", bits=32, computes_in="bf16"),
        WeightFormat(name="bf16", bits=16, computes_in="bf16"),
        WeightFormat(name="fp8", bits=8, computes_in="fp8"),
        WeightFormat(name="int8", bits=8, computes_in="int8"),
        WeightFormat(name="int8-weights", bits=8, computes_in="bf16"),
        WeightFormat(name="int4", bits=4.25, computes_in="bf16"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: each token passes ``num_chosen`` of ``num`` of them."""

    num: int
    num_chosen: int
    intermediate_size: int

    def num_touched(self, num_tokens: float) -> float:
        """Return how many experts so many tokens need, if each choice is as likely."""
        missed: float = (1 - self.num_chosen / self.num) ** num_tokens
        return self.num * (1 - missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer.

    Attributes:
        num_mlp_matrices: 3 with a gate, 2 without.
        experts: in each layer, in place of one MLP; None is a dense model.
        ties_embeddings: the head of the model is the embedding.
        window: positions over which the windowed layers attend.
        num_windowed_layers: how many those are.
        weights: how the layers' matrices are stored.
        kv_element_bytes: of a stored key or value.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    num_mlp_matrices: int = 3
    experts: Experts | None = None
    ties_embeddings: bool = False
    window: int = 0
    num_windowed_layers: int = 0
    weights: WeightFormat = WEIGHT_FORMATS["bf16"]
    kv_element_bytes: float = 2.0

    @property
    def attention_weights(self) -> int:
        """Weights of the projections of one layer."""
        projected = self.num_heads + 2 * self.num_kv_heads
        return self.hidden_size * self.head_dim * (projected + self.num_heads)

    @property
    def expert_weights(self) -> int:
        """Weights of one expert of a layer, or of its MLP."""
        size = self.experts.intermediate_size if self.experts else self.intermediate_size
        return self.num_mlp_matrices * self.hidden_size * size

    @property
    def head_weights(self) -> int:
        """Weights of the head of the model; as many as embeddings."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights, but for norms and biases."""
        num_experts = self.experts.num if self.experts else 1
        layer = self.attention_weights + num_experts * self.expert_weights
        return self.num_layers * layer + self.head_weights * (1 if self.ties_embeddings else 2)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        num_outside = self.head_weights * (1 if self.ties_embeddings else 2)
        in_layers = (self.num_parameters - num_outside) * self.weights.bits / 8
        return in_layers + num_outside * max(self.weights.bits / 8, 2.0 if in_layers else 0.0)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of the keys and values of one position, in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.kv_element_bytes


# ---------------------------------------------------------------- config.json

_NAMES = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_heads": ("num_attention_heads", "n_head", "n_heads"),
    "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab_size": ("vocab_size",),
}
_NO_GATE = {
    *("gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "mpt", "phi", "falcon"),
    *("starcoder2", "gpt_bigcode", "nemotron"),
}
_MISSING_MEANS_TIED = {"gemma", "gemma2", "gemma3_text", "gpt2", "bloom", "opt", "cohere"}
_REFUSED = {
    "kv_lora_rank": "compresses its keys and values (multi-head latent attention)",
    "ssm_cfg": "has state-space layers",
    "mamba_d_state": "has state-space layers",
    "linear_num_key_heads": "has layers of linear attention",
    "linear_attn_config": "has layers of linear attention",
    "n_shared_experts": "has experts that all tokens share",
    "shared_expert_intermediate_size": "has experts that all tokens share",
    "first_k_dense_replace": "has some layers without experts",
}
_WINDOWED = {"sliding_attention", "chunked_attention"}


def read_model_shape(path: Path, *, weights: str | None = None) -> ModelShape:
    """Read a ``config.json``, or the one in a folder.

    Raises:
        ProfileError: it can't be read, or is of a model whose costs are not known here.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{file} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ProfileError(f"{file} is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise ProfileError(f"{file} is no config.json of a model")
    try:
        return model_shape(values, weights=weights)
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from error


def model_shape(values: Mapping[str, Any], *, weights: str | None = None) -> ModelShape:
    """Return the sizes that a ``config.json`` states.

    Args:
        values: its content.
        weights: a key of ``WEIGHT_FORMATS``, in place of the format that it names.

    Raises:
        ProfileError: a size is missing, or the model is one whose costs are not known here.
    """
    outer, values = values, values.get("text_config") or values
    _refuse(values)
    sizes = {key: _integer(values, *names) for key, names in _NAMES.items() if key in _SURE}
    hidden_size, num_heads = sizes["hidden_size"], sizes["num_heads"]
    model_type = str(values.get("model_type", ""))
    shape = ModelShape(
        **sizes,
        num_kv_heads=_kv_heads(values, num_heads),
        head_dim=values.get("head_dim") or hidden_size // num_heads,
        intermediate_size=_intermediate_size(values, hidden_size),
        num_mlp_matrices=2 if model_type in _NO_GATE else 3,
        experts=_experts(values),
        ties_embeddings=bool(values.get("tie_word_embeddings", model_type in _MISSING_MEANS_TIED)),
        weights=_named_format(weights) if weights else _stored_format(values, outer),
    )
    window, number = _window(values, shape.num_layers)
    return replace(shape, window=window, num_windowed_layers=number)


_SURE = ("num_layers", "hidden_size", "num_heads", "vocab_size")


def _refuse(values: Mapping[str, Any]) -> None:
    if values.get("is_encoder_decoder"):
        raise ProfileError("the model has an encoder, and only decoders are known")
    for key, what in _REFUSED.items():
        if values.get(key):
            raise ProfileError(f"the model {what} ({key}), and what that costs is not known here")
    step = values.get("decoder_sparse_step", 1)
    if step != 1 or values.get("mlp_only_layers"):
        raise ProfileError("the model has some layers without experts, which is not known here")
    kinds = set(values.get("layer_types") or ()) - _WINDOWED - {"full_attention"}
    if kinds:
        raise ProfileError(f"the model has layers of {', '.join(sorted(kinds))}, not known here")


def _integer(values: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise ProfileError(f"{names[0]} is missing")


def _intermediate_size(values: Mapping[str, Any], hidden_size: int) -> int:
    """Models of the GPT-2 family leave it out where it is four times the hidden size."""
    names = _NAMES["intermediate_size"]
    if any(values.get(name) for name in names):
        return _integer(values, *names)
    if values.get("model_type") in _NO_GATE:
        return 4 * hidden_size
    if _experts(values):
        return 0
    raise ProfileError("intermediate_size is missing")


def _kv_heads(values: Mapping[str, Any], num_heads: int) -> int:
    number = values.get("num_key_value_heads") or values.get("num_kv_heads")
    if values.get("multi_query") and not values.get("new_decoder_architecture"):
        return 1
    number = number or num_heads
    if num_heads % number:
        raise ProfileError(f"{num_heads} heads can't share {number} key-value heads")
    return int(number)


def _experts(values: Mapping[str, Any]) -> Experts | None:
    number = values.get("num_local_experts") or values.get("num_experts") or 0
    if number <= 1:
        return None
    size = values.get("moe_intermediate_size") or values.get("intermediate_size")
    if not size:
        raise ProfileError("moe_intermediate_size is missing")
    chosen = _integer(values, "num_experts_per_tok", "num_experts_per_token")
    return Experts(num=number, num_chosen=chosen, intermediate_size=size)


def _window(values: Mapping[str, Any], num_layers: int) -> tuple[int, int]:
    """Return the window, and on how many layers it is."""
    window = values.get("sliding_window")
    if not window or values.get("use_sliding_window") is False:
        return 0, 0
    kinds = values.get("layer_types")
    if kinds:
        return window, sum(kind in _WINDOWED for kind in kinds)
    pattern = values.get("sliding_window_pattern")
    if pattern:
        return window, num_layers - num_layers // pattern
    if values.get("model_type") in ("qwen2", "qwen3"):
        return window, max(num_layers - values.get("max_window_layers", num_layers), 0)
    return window, num_layers


def _named_format(name: str) -> WeightFormat:
    try:
        return WEIGHT_FORMATS[name]
    except KeyError:
        known = ", ".join(WEIGHT_FORMATS)
        raise ProfileError(f"no weight format is called {name}: known are {known}") from None


def _stored_format(values: Mapping[str, Any], outer: Mapping[str, Any]) -> WeightFormat:
    quantization = values.get("quantization_config") or outer.get("quantization_config")
    if quantization:
        return WEIGHT_FORMATS[_quantized(quantization)]
    kind = values.get("dtype") or values.get("torch_dtype") or outer.get("torch_dtype")
    if kind in (None, "bfloat16", "float16", "auto"):
        return WEIGHT_FORMATS["bf16"]
    if kind == "float32":
        return WEIGHT_FORMATS["fp32"]
    raise ProfileError(f"weights of type {kind} are not known here")


def _quantized(config: Mapping[str, Any]) -> str:
    method = config.get("quant_method")
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if method in ("gptq", "awq"):
        found = {4: "int4", 8: "int8-weights"}.get(config.get("bits", config.get("w_bit", 0)))
    elif method == "bitsandbytes":
        found = "int4" if config.get("load_in_4bit") else "int8"
    elif method == "compressed-tensors":
        found = _compressed(config)
    else:
        found = None
    if found is None:
        raise ProfileError(f"weights quantized by {method} in this way are not known here")
    return found


def _compressed(config: Mapping[str, Any]) -> str | None:
    groups = list((config.get("config_groups") or {}).values())
    if len(groups) != 1:
        return None
    weights, inputs = groups[0].get("weights") or {}, groups[0].get("input_activations")
    kind, bits = weights.get("type", "int"), weights.get("num_bits")
    if kind == "float":
        return "fp8" if bits == 8 and inputs else None
    if bits == 8:
        return "int8" if inputs else "int8-weights"
    return "int4" if bits == 4 and not inputs else None
