"""Writes a model as a Hugging Face directory without a tokenizer: prompts are token ids here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.peers.shapes import Shape
from benchmarks.peers.weights import Tensor, model_config, tensors, to_bfloat16
from headway.models.architecture import expected_tensors

Dtype = Literal["bfloat16", "float32"]

_STORED: Final = {"bfloat16": ("BF16", 2), "float32": ("F32", 4)}


def write_directory(shape: Shape, folder: Path, dtype: Dtype) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = {**shape.config, "torch_dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1}))
    dimensions = dict(expected_tensors(model_config(shape)))
    write_safetensors(folder / "model.safetensors", dimensions, tensors(shape), dtype)


def write_safetensors(
    path: Path,
    dimensions: dict[str, tuple[int, ...]],
    values: Iterable[Tensor],
    dtype: Dtype,
) -> None:
    """Write tensors one by one, in the order in which they come; none is kept in memory.

    The format: eight bytes with the length of a JSON header, the header, the data.
    """
    header, at = _header(dimensions, dtype)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name, array in values:
            file.seek(8 + len(header) + at[name])
            file.write((to_bfloat16(array) if dtype == "bfloat16" else array).tobytes())


def _header(dimensions: dict[str, tuple[int, ...]], dtype: Dtype) -> tuple[bytes, dict[str, int]]:
    """Return the header, padded to whole words, and where each tensor begins behind it."""
    stored, size = _STORED[dtype]
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begins: dict[str, int] = {}
    end = 0
    for name, shape in dimensions.items():
        begins[name] = end
        count = 1
        for length in shape:
            count *= length
        end += count * size
        entries[name] = {"dtype": stored, "shape": shape, "data_offsets": [begins[name], end]}
    text = json.dumps(entries).encode()
    return text.ljust(-(-len(text) // 8) * 8), begins
