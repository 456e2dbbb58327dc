"""Which tensors a configuration calls for, and the check that a checkpoint has exactly those."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from headway.errors import ModelError
from headway.models.checkpoint import Checkpoint
from headway.models.config import ModelConfig
from headway.models.fields import shown

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

Shape: TypeAlias = tuple[int, ...]


def expected_tensors(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Yield name and shape of each tensor of the model, in the order of the computation.

    Lazily: an absurd number of layers in a damaged file costs nothing.
    """
    hidden = config.hidden_size
    yield EMBEDDING, (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        for name, shape in _attention(config):
            yield f"{prefix}self_attn.{name}", shape
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        for name, shape in _mlp(config):
            yield f"{prefix}mlp.{name}", shape
    yield "model.norm.weight", (hidden,)
    if not config.tie_word_embeddings:
        yield HEAD, (config.vocab_size, hidden)


def _attention(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, q = config.hidden_size, config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    yield from _linear("q_proj", q, hidden, config.attention_bias)
    yield from _linear("k_proj", kv, hidden, config.attention_bias)
    yield from _linear("v_proj", kv, hidden, config.attention_bias)
    if config.qk_norm:
        yield "q_norm.weight", (config.head_dim,)
        yield "k_norm.weight", (config.head_dim,)
    yield from _linear("o_proj", hidden, q, config.attention_output_bias)


def _mlp(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield from _linear("gate_proj", inner, hidden, config.mlp_bias)
    yield from _linear("up_proj", inner, hidden, config.mlp_bias)
    yield from _linear("down_proj", hidden, inner, config.mlp_bias)


def _linear(name: str, rows: int, columns: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def check_tensors(checkpoint: Checkpoint) -> None:
    """Raise ModelError unless every tensor of the architecture is there in its shape, and no other.

    A tensor too many is an error because the model that was trained used it. No weight is read, but
    for an output head stored beside tied embeddings: it must hold the same values.
    """
    expected: set[str] = set()
    for name, shape in expected_tensors(checkpoint.config):
        tensor = checkpoint.tensors.get(name)
        if tensor is None:
            raise ModelError(f"{checkpoint.path}: tensor {name} is missing")
        if tensor.shape != shape:
            raise ModelError(
                f"{checkpoint.path}: tensor {name} has shape {shown(tensor.shape)}, "
                f"but the configuration asks for {shown(shape)}"
            )
        expected.add(name)
    surplus = checkpoint.tensors.keys() - expected
    if HEAD in surplus:
        _check_tied(checkpoint)
        surplus -= {HEAD}
    if surplus:
        raise ModelError(
            f"{checkpoint.path}: has {len(surplus)} tensors that this configuration "
            f"({checkpoint.config.architecture}) does not use, such as {shown(min(surplus))}"
        )


def _check_tied(checkpoint: Checkpoint) -> None:
    head, embedding = checkpoint.tensors[HEAD], checkpoint.tensors[EMBEDDING]
    if head.format != embedding.format or not np.array_equal(head.data, embedding.data):
        raise ModelError(
            f"{checkpoint.path}: {HEAD} differs from {EMBEDDING}, "
            "but tie_word_embeddings says that they are one"
        )
