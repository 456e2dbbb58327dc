"""Which models are compared: the default one, and shapes of larger ones with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model by its ``config.json``.

    ``catalogued`` is its name in Headway's catalogue; a shape without one has random weights.
    """

    name: str
    label: str
    config: Mapping[str, Any]
    catalogued: str | None = None


_COMMON: Final[Mapping[str, Any]] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}

SMOLLM2: Final = Shape(
    name="smollm2-135m",
    label="SmolLM2-135M-Instruct",
    catalogued="smollm2-135m-instruct",
    config={
        **_COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
    },
)

QWEN3: Final = Shape(
    name="qwen3-0.6b",
    label="Qwen3-0.6B, random weights",
    config={
        **_COMMON,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
)

# Plain rotary frequencies: the scaling of Llama 3 costs nothing once they are computed.
LLAMA32: Final = Shape(
    name="llama-3.2-1b",
    label="Llama-3.2-1B, random weights",
    config={
        **_COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
    },
)

SHAPES: Final[Mapping[str, Shape]] = {shape.name: shape for shape in (SMOLLM2, QWEN3, LLAMA32)}
