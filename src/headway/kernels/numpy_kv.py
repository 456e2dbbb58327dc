"""How keys and values are kept by the operations in NumPy: as they are, or rounded."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Stored = npt.NDArray[Any]


class KvFormat(Protocol):
    """What the pool is made of. A head's elements are the last axis of the floats."""

    def dtype(self, head_dim: int) -> np.dtype[Any]:
        """Return the type of one head at one position."""
        ...

    def turn(self, heads: Floats) -> Floats:
        """Return keys, or queries, as they are compared: their products stay what they were."""
        ...

    def narrow(self, heads: Floats) -> Stored:
        """Return what is stored."""
        ...

    def widen(self, stored: Stored) -> Floats:
        """Return what was stored, as near as it was kept."""
        ...


class Float32Kv:
    """Keys and values as they are."""

    def dtype(self, head_dim: int) -> np.dtype[Any]:
        """Return a row of numbers."""
        return np.dtype((np.float32, (head_dim,)))

    def turn(self, heads: Floats) -> Floats:
        """Return the same."""
        return heads

    def narrow(self, heads: Floats) -> Stored:
        """Return the same."""
        return heads

    def widen(self, stored: Stored) -> Floats:
        """Return the same."""
        return stored


class Bfloat16Kv:
    """The upper halves of float32, rounded to the nearest, the even one of two."""

    def dtype(self, head_dim: int) -> np.dtype[Any]:
        """Return a row of halves."""
        return np.dtype((np.uint16, (head_dim,)))

    def turn(self, heads: Floats) -> Floats:
        """Return the same."""
        return heads

    def narrow(self, heads: Floats) -> Stored:
        """Round."""
        bits = np.ascontiguousarray(heads).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        return np.where(np.isnan(heads), 0x7FC0, rounded).astype(np.uint16)

    def widen(self, stored: Stored) -> Floats:
        """Fill up with zeros."""
        return (stored.astype(np.uint32) << 16).view(np.float32)


class Int8Kv:
    """Multiples of a 127th of the largest magnitude in a head.

    Keys have channels that are far above the rest. A Hadamard transform spreads them (Ashkboos et
    al., 2024), so that one scale does for all.
    """

    def dtype(self, head_dim: int) -> np.dtype[Any]:
        """Return a row of codes and their scale."""
        return np.dtype([("codes", np.int8, (head_dim,)), ("scale", np.float32)])

    def turn(self, heads: Floats) -> Floats:
        """Transform by the largest power of 2 that divides the width."""
        width = heads.shape[-1]
        size = width & -width
        matrix = np.ones((1, 1), dtype=np.float32)
        while len(matrix) < size:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
        parts = heads.reshape(*heads.shape[:-1], -1, size)
        with np.errstate(invalid="ignore", over="ignore"):
            turned: Floats = parts @ (matrix * np.float32(size**-0.5))
        return turned.reshape(heads.shape)

    def narrow(self, heads: Floats) -> Stored:
        """Round; where a value is not finite, neither is the scale."""
        scale = np.abs(heads).max(axis=-1) / np.float32(127)
        stored = np.empty(scale.shape, dtype=self.dtype(heads.shape[-1]))
        stored["scale"] = scale
        with np.errstate(invalid="ignore", divide="ignore"):
            codes = np.rint(heads / scale[..., None])
        stored["codes"] = np.nan_to_num(codes, posinf=127, neginf=-127).astype(np.int8)
        return stored

    def widen(self, stored: Stored) -> Floats:
        """Multiply."""
        with np.errstate(invalid="ignore"):
            heads: Floats = stored["codes"] * stored["scale"][..., None]
        return heads


KV_FORMATS: dict[str, KvFormat] = {
    "float32": Float32Kv(),
    "bfloat16": Bfloat16Kv(),
    "int8": Int8Kv(),
}
