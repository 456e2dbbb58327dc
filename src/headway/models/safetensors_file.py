"""Reads safetensors files by mapping them.

The ``safetensors`` package hands numpy no BF16 and copies each tensor. The format is an 8-byte
little-endian length, a JSON header, and the data (https://github.com/huggingface/safetensors), so
it is read here directly, as strictly as by the reference: the tensors must tile the data without
gap or overlap.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from headway.errors import ModelError
from headway.models.fields import parse_json_object, read_json_object, shown
from headway.models.tensors import BLOCKS, MappedTensor, map_file, mapped_tensor

_FORMATS: Final = ("F32", "F16", "BF16")
_MAX_HEADER_BYTES: Final = 100_000_000  # the reference implementation's own limit
_MAX_AXES: Final = 8


def open_safetensors(path: Path) -> dict[str, MappedTensor]:
    """Return the tensors of one file by name; raises ModelError for anything irregular."""
    raw = map_file(path)
    header, data = _split(raw, path)
    header.pop("__metadata__", None)
    spans: list[tuple[int, int, str]] = []
    tensors: dict[str, MappedTensor] = {}
    for name, entry in header.items():
        storage, shape, begin, end = _entry(entry, name, path)
        if end > len(data):
            raise ModelError(
                f"{path}: truncated: tensor {shown(name)} ends at byte {end} of the data, "
                f"which has {len(data)}"
            )
        spans.append((begin, end, name))
        tensors[name] = mapped_tensor(data[begin:end], shape, storage)
    _check_tiling(spans, len(data), path)
    return tensors


def open_shards(index: Path) -> dict[str, MappedTensor]:
    """Return the tensors of all files that ``model.safetensors.index.json`` names."""
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index}: has no weight_map")
    shards: dict[str, dict[str, MappedTensor]] = {}
    tensors: dict[str, MappedTensor] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelError(f"{index}: weight_map has no plain file name: {shown(file)}")
        if file not in shards:
            shards[file] = _open_shard(index, file)
        if name not in shards[file]:
            raise ModelError(f"{index.parent / file}: has no tensor {shown(name)}")
        tensors[name] = shards[file][name]
    return tensors


def _open_shard(index: Path, file: str) -> dict[str, MappedTensor]:
    shard = index.parent / file
    if not shard.exists():
        raise ModelError(f"{shard}: missing, but {index.name} names it")
    return open_safetensors(shard)


def _split(raw: npt.NDArray[np.uint8], path: Path) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Return the parsed header and the bytes after it."""
    if len(raw) < 8:
        raise ModelError(f"{path}: not a safetensors file, or truncated: only {len(raw)} bytes")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    if length > _MAX_HEADER_BYTES or (length and len(raw) > 8 and raw[8] != ord("{")):
        raise ModelError(f"{path}: not a safetensors file")
    if length > len(raw) - 8:
        raise ModelError(f"{path}: truncated inside the header")
    return parse_json_object(raw[8 : 8 + length].tobytes(), path), raw[8 + length :]


def _entry(entry: Any, name: str, path: Path) -> tuple[str, tuple[int, ...], int, int]:
    """Return storage format, shape, begin and end of one header entry."""
    where = f"{path}: tensor {shown(name)}"
    if not isinstance(entry, dict):
        raise ModelError(f"{where} has a damaged header entry")
    storage, shape = entry.get("dtype"), entry.get("shape")
    offsets = entry.get("data_offsets")
    if not _is_counts(shape) or len(shape) > _MAX_AXES or 0 in shape:
        raise ModelError(f"{where} has an invalid shape: {shown(shape)}")
    if not _is_counts(offsets) or len(offsets) != 2:
        raise ModelError(f"{where} has invalid data_offsets: {shown(offsets)}")
    if storage not in _FORMATS:
        raise ModelError(
            f"{where} is stored as {shown(storage)}; supported are {', '.join(_FORMATS)}"
        )
    begin, end = offsets
    if end - begin != prod(shape) * BLOCKS[storage][1]:
        raise ModelError(f"{where} has data_offsets that do not match its shape {shown(shape)}")
    return storage, tuple(shape), begin, end


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    )


def _check_tiling(spans: list[tuple[int, int, str]], size: int, path: Path) -> None:
    """Raise unless the tensors cover the data exactly once."""
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            fault = "overlaps another" if begin < position else "leaves a gap before it"
            raise ModelError(f"{path}: damaged header: tensor {shown(name)} {fault}")
        position = end
    if position != size:
        raise ModelError(f"{path}: {size - position} bytes after the last tensor")
