"""The weights of a shape: those of a catalogued model, or random ones, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.shapes import Shape
from headway.models.architecture import expected_tensors
from headway.models.catalog import resolve
from headway.models.config import ModelConfig
from headway.models.fields import Fields
from headway.models.hf_config import parse_config
from headway.models.loading import open_checkpoint

Tensor = tuple[str, npt.NDArray[np.float32]]


def catalogued_file(shape: Shape) -> Path:
    """Return the file of a catalogued model, downloaded if need be."""
    assert shape.catalogued is not None, f"{shape.name} has random weights"
    return resolve(shape.catalogued)


def tensors(shape: Shape) -> Iterator[Tensor]:
    """Yield each tensor in float32, by its Hugging Face name."""
    if shape.catalogued is None:
        return random_tensors(model_config(shape))
    stored = open_checkpoint(catalogued_file(shape)).tensors
    return ((name, tensor.to_float32()) for name, tensor in stored.items())


def model_config(shape: Shape) -> ModelConfig:
    return parse_config(Fields(Path(shape.name) / "config.json", dict(shape.config)))


def random_tensors(config: ModelConfig, seed: int = 0) -> Iterator[Tensor]:
    """Yield normal weights with a deviation of 0.02, as untrained models have, and norms of 1."""
    draw = partial(np.random.default_rng(seed).standard_normal, dtype=np.float32)
    for name, dimensions in expected_tensors(config):
        values: Any = np.ones(dimensions, np.float32)
        if len(dimensions) > 1:
            values = draw(dimensions) * np.float32(0.02)
        yield name, values


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to the nearest bfloat16, ties to even; finite values only."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    odd = (bits >> 16) & 1
    return ((bits + 0x7FFF + odd) >> 16).astype(np.uint16)
