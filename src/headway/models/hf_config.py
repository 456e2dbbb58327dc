"""Reads a Hugging Face ``config.json`` into a :class:`ModelConfig`.

Keys that are absent take the defaults of the ``transformers`` class of that architecture, because
that is what wrote the file. Whatever would change the numbers and is not implemented is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headway.errors import ModelError
from headway.models.config import LinearRopeScaling, Llama3RopeScaling, ModelConfig
from headway.models.fields import Fields, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What ``transformers`` assumes when config.json is silent; None: derived from other keys."""

    max_position_embeddings: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    sliding_window: int | None = None


_DEFAULTS: Final = {
    "llama": _Defaults(max_position_embeddings=2048),
    "mistral": _Defaults(max_position_embeddings=131072, num_kv_heads=8, sliding_window=4096),
    "qwen2": _Defaults(max_position_embeddings=32768, num_kv_heads=32, sliding_window=4096),
    "qwen3": _Defaults(
        max_position_embeddings=32768, num_kv_heads=32, head_dim=128, sliding_window=4096
    ),
}

_CLASSES: Final = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "pretraining_tp": (1,),
    "partial_rotary_factor": (1, 1.0),
    "quantization_config": ({},),
    "compression_config": (),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "hidden_act": ("silu", "swish"),
}
"""Settings that change the numbers, and the only values (besides null) that are implemented."""


def parse_config(fields: Fields) -> ModelConfig:
    """Return the configuration; raises ModelError for what is missing, odd, or not supported."""
    architecture = _architecture(fields)
    _refuse_unsupported(fields)
    defaults = _DEFAULTS[architecture]
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    num_layers = fields.integer("num_hidden_layers")
    context = fields.integer("max_position_embeddings", defaults.max_position_embeddings)
    bias = _biases(fields, architecture)
    config = ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_kv_heads(fields, defaults, num_heads),
        head_dim=fields.integer("head_dim", defaults.head_dim or hidden_size // num_heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(fields),
        max_position_embeddings=context,
        tie_word_embeddings=fields.boolean("tie_word_embeddings", False),
        rope_scaling=_rope_scaling(fields),
        qk_norm=architecture == "qwen3",
        sliding_window=_sliding_window(fields, architecture, num_layers, context),
        **bias,
    )
    check_config(config, fields)
    return config


def check_config(config: ModelConfig, fields: Fields) -> None:
    """Raise ModelError when the sizes can't belong together."""
    if config.num_heads % config.num_kv_heads:
        raise ModelError(
            f"{fields.path}: {config.num_heads} attention heads can't share "
            f"{config.num_kv_heads} key-value heads"
        )
    if config.head_dim % 2 or not config.head_dim:
        raise ModelError(f"{fields.path}: head_dim {config.head_dim} can't be rotated in pairs")


def _architecture(fields: Fields) -> str:
    named = fields.get("architectures") or []
    if not isinstance(named, list) or len(named) != 1 or named[0] not in _CLASSES:
        raise fields.fail(
            "architectures", f"is {shown(named)}; supported are {', '.join(_CLASSES)}"
        )
    architecture = _CLASSES[named[0]]
    model_type = fields.string("model_type", architecture)
    if model_type != architecture:
        raise fields.fail("model_type", f"is {shown(model_type)}, which is no {named[0]}")
    return architecture


def _refuse_unsupported(fields: Fields) -> None:
    for key, allowed in _NEUTRAL.items():
        value = fields.get(key)
        if value is not None and value not in allowed:
            only = f"only {allowed[0]!r} is" if allowed and allowed[0] else "this is not"
            raise fields.fail(key, f"is {shown(value)}; {only} supported")


def _kv_heads(fields: Fields, defaults: _Defaults, num_heads: int) -> int:
    """Explicit null means one for each head; silence means the default of the class."""
    silent = "num_key_value_heads" not in fields.values
    default = defaults.num_kv_heads if silent else None
    return fields.integer("num_key_value_heads", default or num_heads)


def _biases(fields: Fields, architecture: str) -> dict[str, bool]:
    """Return the bias switches; Qwen2 always has them on q, k, v, and Mistral never has any."""
    if architecture == "mistral":
        return {}
    if architecture == "qwen2":
        return {"attention_bias": True}
    attention = fields.boolean("attention_bias", False)
    return {
        "attention_bias": attention,
        "attention_output_bias": attention,
        "mlp_bias": architecture == "llama" and fields.boolean("mlp_bias", False),
    }


def _rope_fields(fields: Fields) -> Fields | None:
    """Return the rope section: ``rope_parameters`` in transformers 5, before ``rope_scaling``."""
    return fields.section("rope_parameters") or fields.section("rope_scaling")


def _rope_theta(fields: Fields) -> float:
    section = fields.section("rope_parameters")
    top = fields.number("rope_theta", 10000.0)
    return top if section is None else section.number("rope_theta", top)


def _rope_scaling(fields: Fields) -> Llama3RopeScaling | LinearRopeScaling | None:
    section = _rope_fields(fields)
    if section is None:
        return None
    if section.number("partial_rotary_factor", 1.0) != 1.0:
        raise section.fail("partial_rotary_factor", "other than 1 is not supported")
    kind = section.string("rope_type", section.string("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return LinearRopeScaling(factor=section.number("factor"))
    if kind == "llama3":
        return _llama3(section)
    raise section.fail(
        "rope_type", f"is {shown(kind)}; supported are 'default', 'linear' and 'llama3'"
    )


def _llama3(section: Fields) -> Llama3RopeScaling:
    low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
    if high <= low:
        raise section.fail("high_freq_factor", f"must be above low_freq_factor ({low})")
    return Llama3RopeScaling(
        factor=section.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=section.integer("original_max_position_embeddings"),
    )


def _sliding_window(fields: Fields, architecture: str, num_layers: int, context: int) -> int | None:
    """Return the window of all layers, or None; a window on some layers only is refused."""
    if architecture == "llama":
        return None
    window = _stated_window(fields, architecture)
    if window is None or window >= context:
        return None
    sliding = _num_sliding_layers(fields, architecture, num_layers)
    if sliding not in (0, num_layers):
        raise fields.fail(
            "sliding_window", f"is on {sliding} of {num_layers} layers; only all or none work"
        )
    return window if sliding else None


def _stated_window(fields: Fields, architecture: str) -> int | None:
    """Return the window, where null says none and silence means the default of the class."""
    if architecture != "mistral" and not fields.boolean("use_sliding_window", False):
        return None
    if "sliding_window" not in fields.values:
        return _DEFAULTS[architecture].sliding_window
    return None if fields.get("sliding_window") is None else fields.integer("sliding_window")


def _num_sliding_layers(fields: Fields, architecture: str, num_layers: int) -> int:
    """Return how many layers have the window: ``layer_types`` says, else ``max_window_layers``."""
    if architecture == "mistral":
        return num_layers
    types = fields.get("layer_types")
    if types is None:
        first = fields.integer("max_window_layers", 28, minimum=0)
        return max(num_layers - first, 0)
    known: Mapping[str, int] = {"full_attention": 0, "sliding_attention": 1}
    if not isinstance(types, list) or len(types) != num_layers or not set(types) <= set(known):
        raise fields.fail("layer_types", f"is not supported: {shown(types)}")
    return sum(known[kind] for kind in types)
