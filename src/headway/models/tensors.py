"""Tensors that stay in a mapped file, and the storage formats they may have.

Block formats are dequantised by the ``gguf`` package, so the values are the reference's bit by bit.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from headway.errors import ModelError

BLOCKS: Final[dict[str, tuple[int, int]]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
"""Elements a block and bytes a block, by storage format."""


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file read-only and return its bytes; nothing is read until it is touched.

    The mapping lives as long as an array that looks into it.
    """
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # what mmap says of an empty file
        raise ModelError(f"{path}: the file is empty") from error
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {error.strerror or error}") from error
    return np.frombuffer(mapped, dtype=np.uint8)


def stored_bytes(shape: tuple[int, ...], storage: str) -> int:
    """Return how many bytes a tensor takes.

    Raises ValueError when it has no element, or when a block would cross a row.
    """
    elements, size = BLOCKS[storage]
    if 0 in shape:
        raise ValueError("it has no elements")
    columns = shape[-1] if shape else 1
    if columns % elements:
        raise ValueError(f"a row of {columns} is no whole number of {storage} blocks of {elements}")
    return prod(shape) // elements * size


def dequantise(data: npt.NDArray[np.uint8], storage: str) -> npt.NDArray[np.float32]:
    """Return a new float32 array for stored rows (last axis: bytes of a row)."""
    if storage == "F32":
        return data.view(np.float32).copy()
    if storage == "F16":
        return data.view(np.float16).astype(np.float32)
    if storage == "BF16":
        widened = data.view(np.uint16).astype(np.uint32)
        return np.left_shift(widened, 16, out=widened).view(np.float32)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    values: npt.NDArray[np.float32] = dequantize(data, GGMLQuantizationType[storage])
    return values


@dataclass(frozen=True, slots=True, eq=False)
class MappedTensor:
    """A tensor whose bytes lie in a mapped file.

    ``data`` has the shape of the tensor but for its last axis, which counts bytes.
    """

    shape: tuple[int, ...]
    format: str
    data: npt.NDArray[np.uint8]

    def to_float32(self) -> npt.NDArray[np.float32]:
        """Dequantise into a new array of ``shape``."""
        return dequantise(self.data, self.format)


def mapped_tensor(raw: npt.NDArray[np.uint8], shape: tuple[int, ...], storage: str) -> MappedTensor:
    """Give the bytes of one tensor, exactly as many as it takes, their shape."""
    rows = shape[:-1]
    return MappedTensor(shape, storage, raw.reshape(*rows, len(raw) // prod(rows)))
