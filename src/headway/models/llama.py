"""The forward pass of the Llama family: Llama, Mistral, Qwen2 and Qwen3.

Written once against the small set of operations in :class:`headway.kernels.ops.Ops`; tensors are
opaque here. The architectures differ only in what :class:`headway.models.config.ModelConfig`
says: biases, norms over the heads of q and k, a sliding window, the rotary scaling.

Residual connections are folded into the norms: :meth:`Ops.rms_norm` first adds the output of the
sublayer before it to the residual stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from headway.kernels.ops import Matrix, Ops, Step, Tensor
from headway.models.checkpoint import StoredTensor
from headway.models.config import ModelConfig

Tensors = Mapping[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class _Layer(Generic[Tensor, Matrix]):
    input_norm: Tensor
    qkv: Matrix  # rows of q, then k, then v
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Matrix
    mlp_norm: Tensor
    gate_up: Matrix  # rows of gate, then up
    down: Matrix


class Llama(Generic[Tensor, Matrix, Step]):
    """A decoder-only transformer on one set of operations.

    Args:
        config: the hyperparameters.
        tensors: the weights under their Hugging Face names.
        ops: the backend, which also owns the KV pool.
    """

    def __init__(
        self, config: ModelConfig, tensors: Tensors, ops: Ops[Tensor, Matrix, Step]
    ) -> None:
        self._ops = ops
        self._eps = config.rms_norm_eps
        embedding = tensors["model.embed_tokens.weight"]
        head = embedding if config.tie_word_embeddings else tensors["lm_head.weight"]
        self._embedding = ops.load_table(embedding)
        self._layers = [
            _load_layer(config, tensors, f"model.layers.{index}.", ops)
            for index in range(config.num_layers)
        ]
        self._final_norm = ops.load_vector(tensors["model.norm.weight"])
        self._head = ops.load_head(head)

    def forward(self, step: Step) -> Tensor:
        """Compute every position of the step; its keys and values go to the KV pool.

        Returns the normalised hidden states, ``(rows, hidden)``, for :meth:`Ops.logits`.
        """
        ops = self._ops
        residual = ops.embed(self._embedding, step)
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            hidden = ops.rms_norm(residual, delta, layer.input_norm, self._eps)
            delta = self._attend(hidden, layer, index, step)
            hidden = ops.rms_norm(residual, delta, layer.mlp_norm, self._eps)
            delta = ops.linear(ops.silu_mul(ops.linear(hidden, layer.gate_up)), layer.down)
        return ops.final_norm(residual, delta, self._final_norm, self._eps)

    @property
    def head(self) -> Matrix:
        """The output head, for :meth:`Ops.logits`."""
        return self._head

    def _attend(
        self, hidden: Tensor, layer: _Layer[Tensor, Matrix], index: int, step: Step
    ) -> Tensor:
        qkv = self._ops.linear(hidden, layer.qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            qkv = self._ops.norm_heads(qkv, layer.q_norm, layer.k_norm, self._eps)
        queries = self._ops.rotate_and_store(qkv, index, step)
        return self._ops.linear(self._ops.attention(queries, index, step), layer.output)


def _load_layer(
    config: ModelConfig, tensors: Tensors, prefix: str, ops: Ops[Tensor, Matrix, Step]
) -> _Layer[Tensor, Matrix]:
    def vector(name: str) -> Tensor:
        return ops.load_vector(tensors[prefix + name])

    def matrix(*names: str, bias: bool) -> Matrix:
        biases = [tensors[f"{prefix}{name}.bias"] for name in names] if bias else []
        return ops.load_matrix([tensors[f"{prefix}{name}.weight"] for name in names], biases)

    attention_bias, mlp_bias = config.attention_bias, config.mlp_bias
    return _Layer(
        input_norm=vector("input_layernorm.weight"),
        qkv=matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=attention_bias),
        q_norm=vector("self_attn.q_norm.weight") if config.qk_norm else None,
        k_norm=vector("self_attn.k_norm.weight") if config.qk_norm else None,
        output=matrix("self_attn.o_proj", bias=config.attention_output_bias),
        mlp_norm=vector("post_attention_layernorm.weight"),
        gate_up=matrix("mlp.gate_proj", "mlp.up_proj", bias=mlp_bias),
        down=matrix("mlp.down_proj", bias=mlp_bias),
    )
