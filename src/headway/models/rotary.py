"""Rotary position embedding (Su et al., 2021): the frequencies, and how each scaling bends them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headway.models.config import (
    LinearRopeScaling,
    Llama3RopeScaling,
    ModelConfig,
    RopeFrequencyFactors,
)

Float32Array = npt.NDArray[np.float32]


def inverse_frequencies(config: ModelConfig) -> Float32Array:
    """Return the angle per position of each pair of head elements, shape ``(head_dim / 2,)``.

    It is ``rope_theta ** (-2 i / head_dim)`` before scaling, computed in float64 and rounded once.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    frequencies = np.exp(-math.log(config.rope_theta) * exponents).astype(np.float32)
    match config.rope_scaling:
        case None:
            return frequencies
        case LinearRopeScaling(factor=factor):
            return frequencies / np.float32(factor)
        case RopeFrequencyFactors(factors=factors):
            divisors: Float32Array = np.array(factors, dtype=np.float32)
            return frequencies / divisors
        case Llama3RopeScaling() as scaling:
            return _llama3(frequencies, scaling)


def _llama3(frequencies: Float32Array, scaling: Llama3RopeScaling) -> Float32Array:
    """Slow the low frequencies by ``factor``, keep the high ones, blend in between.

    Source: the Llama 3.1 reference code (``apply_scaling``).
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    context = scaling.original_max_position_embeddings
    wavelengths = np.float32(2 * math.pi) / frequencies
    slowed = frequencies / np.float32(scaling.factor)
    share = (context / wavelengths - low) / (high - low)
    blended = (1 - share) * slowed + share * frequencies
    scaled = np.where(wavelengths > context / low, slowed, blended)
    return np.where(wavelengths < context / high, frequencies, scaled).astype(np.float32)
