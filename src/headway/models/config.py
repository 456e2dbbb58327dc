"""The shape of a model, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3RopeScaling:
    """Frequency scaling of Llama 3.1 and later (``rope_type: llama3``)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRopeScaling:
    """Positions divided by ``factor`` (Chen et al., 2023)."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeFrequencyFactors:
    """Explicit divisors of the rotary frequencies, one for each of the ``head_dim / 2`` of them.

    ``inverse_frequency[i] = rope_theta ** (-2 * i / head_dim) / factors[i]``. GGUF files carry
    Llama 3 scaling as such a list (``rope_freqs.weight``), without the parameters that made it.
    """

    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Hyperparameters of a decoder-only transformer of the Llama family.

    ``architecture`` is one of the keys of the model registry: ``llama``, ``mistral``, ``qwen2``,
    ``qwen3``. Sizes are in elements; ``max_position_embeddings`` is the context in tokens.
    ``sliding_window`` is the number of latest positions that attention sees, None for all.
    ``rope_scaling`` is one of the three types above; model code handles each.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    rope_scaling: Llama3RopeScaling | LinearRopeScaling | RopeFrequencyFactors | None = None
    attention_bias: bool = False  # bias on q, k and v projections
    attention_output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMSNorm over each head of q and k (Qwen3)
    sliding_window: int | None = None
