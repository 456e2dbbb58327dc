"""Sizes of a model that is at hand without a file."""

from __future__ import annotations

from collections.abc import Mapping

#: as in the ``config.json`` of the first Llama with 7B parameters, and of Llama-2-7B
LLAMA_7B: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}
