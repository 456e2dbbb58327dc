"""Reads GGUF files by mapping them: metadata as plain values, tensors as views of the file.

``gguf.GGUFReader`` makes several numpy views of each array element, which takes seconds on a
vocabulary, and it trusts counts and offsets. The layout
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) is small, so it is read here, with every
count checked against the bytes that are left before anything is built from it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headway.errors import ModelError
from headway.models.fields import shown
from headway.models.tensors import BLOCKS, MappedTensor, map_file, mapped_tensor, stored_bytes

_STRING: Final = 8
_ARRAY: Final = 9
_BOOL: Final = 7
_FLOAT32: Final = 6
_SCALARS: Final = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", _FLOAT32: "<f4", _BOOL: "<u1",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STORAGE: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 30: "BF16",
}  # fmt: skip
_MAX_ARRAY: Final = 2**22  # elements; the largest vocabularies have some hundred thousand
_MAX_AXES: Final = 4  # GGML_MAX_DIMS
_MIN_FIELD_BYTES: Final = 13
_MIN_TENSOR_BYTES: Final = 24
_MAX_ALIGNMENT: Final = 2**16


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """The content of a GGUF file, under the file's own names."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, MappedTensor]


def read_gguf(path: Path) -> GGUFFile:
    """Map and parse one file; raises ModelError for anything irregular."""
    cursor = _Cursor(map_file(path), path)
    tensor_count, field_count = _read_preamble(cursor)
    metadata = _read_metadata(cursor, field_count)
    entries = [_read_entry(cursor) for _ in range(tensor_count)]
    return GGUFFile(path, metadata, _map_tensors(cursor, entries, _alignment(cursor, metadata)))


class _Cursor:
    """A position in the mapped bytes; reading past the end is a ModelError."""

    def __init__(self, raw: npt.NDArray[np.uint8], path: Path) -> None:
        self.raw = raw
        self.path = path
        self.position = 0
        self._view = raw.data

    def fail(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}: {problem}")

    def need(self, count: int, size: int) -> None:
        """Raise unless ``count`` things of at least ``size`` bytes are left."""
        if count * size > len(self.raw) - self.position:
            raise self.fail(f"truncated or damaged at byte {self.position} of its header")

    def take(self, size: int) -> memoryview:
        self.need(size, 1)
        self.position += size
        return self._view[self.position - size : self.position]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self) -> str:
        at = self.position
        try:
            return str(self.take(self.u64()), "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"damaged: the text at byte {at} is not UTF-8") from error

    def texts(self, count: int) -> list[str]:
        """Read ``count`` strings; the loop is the whole cost of opening a file, so it is bare."""
        view, at, length_at = self._view, self.position, struct.Struct("<Q").unpack_from
        size, values = len(view), list[str]()
        try:
            for _ in range(count):
                start = at + 8
                at = start + length_at(view, at)[0]
                if at > size:
                    raise self.fail("truncated or damaged: a text runs past the end of the file")
                values.append(str(view[start:at], "utf-8"))
        except (struct.error, UnicodeDecodeError) as error:
            raise self.fail(f"truncated or damaged near byte {at} of its header") from error
        self.position = at
        return values

    def numbers(self, kind: int, count: int) -> npt.NDArray[Any]:
        dtype = np.dtype(_SCALARS[kind])
        self.need(count, dtype.itemsize)
        values = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        return values.astype(np.bool_) if kind == _BOOL else values


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    """Return the numbers of tensors and of metadata fields."""
    if cursor.raw[:4].tobytes() != b"GGUF":
        raise cursor.fail("not a GGUF file")
    cursor.position = 4
    version = cursor.u32()
    if version not in (2, 3):
        kind = "big-endian GGUF" if version and version & 0xFFFF == 0 else f"GGUF version {version}"
        raise cursor.fail(f"{kind} is not supported; little-endian versions 2 and 3 are")
    return cursor.u64(), cursor.u64()


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    cursor.need(count, _MIN_FIELD_BYTES)
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text()
        if key in metadata:
            raise cursor.fail(f"damaged: the metadata key {shown(key)} appears twice")
        metadata[key] = _read_value(cursor, key, cursor.u32())
    return metadata


def _read_value(cursor: _Cursor, key: str, kind: int) -> Any:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _read_array(cursor, key, cursor.u32(), cursor.u64())
    if kind not in _SCALARS:
        raise cursor.fail(f"damaged: the metadata key {shown(key)} has the unknown type {kind}")
    value = cursor.numbers(kind, 1)[0]
    # The shortest decimal that means the same float32: 1e-05, as it was written, not 9.99999e-06.
    return float(str(value)) if kind == _FLOAT32 else value.item()


def _read_array(cursor: _Cursor, key: str, kind: int, count: int) -> list[Any]:
    if count > _MAX_ARRAY:
        raise cursor.fail(f"damaged: the metadata key {shown(key)} claims {count} values")
    if kind == _STRING:
        cursor.need(count, 8)
        return cursor.texts(count)
    if kind not in _SCALARS:
        raise cursor.fail(f"the metadata key {shown(key)} is an array of the unknown type {kind}")
    values: list[Any] = cursor.numbers(kind, count).tolist()
    return values


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a tensor lies, relative to the start of the data."""

    name: str
    shape: tuple[int, ...]
    storage: str
    offset: int


def _read_entry(cursor: _Cursor) -> _Entry:
    cursor.need(1, _MIN_TENSOR_BYTES)
    name = cursor.text()
    axes = cursor.u32()
    if not 1 <= axes <= _MAX_AXES:
        raise cursor.fail(f"damaged: tensor {shown(name)} has {axes} axes")
    shape = tuple(cursor.u64() for _ in range(axes))[::-1]  # GGUF counts the fastest axis first
    storage = _storage_name(cursor, name, cursor.u32())
    return _Entry(name, shape, storage, cursor.u64())


def _storage_name(cursor: _Cursor, name: str, kind: int) -> str:
    if kind in _STORAGE:
        return _STORAGE[kind]
    from gguf.constants import GGMLQuantizationType  # takes as long to load as the file

    try:
        storage = GGMLQuantizationType(kind).name
    except ValueError as error:
        raise cursor.fail(f"tensor {shown(name)} has the unknown storage type {kind}") from error
    raise cursor.fail(
        f"tensor {shown(name)} is stored as {storage}; supported are {', '.join(BLOCKS)}"
    )


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if alignment not in [2**n for n in range(3, _MAX_ALIGNMENT.bit_length())]:
        raise cursor.fail(f"general.alignment is {shown(alignment)}, not a small power of two")
    return int(alignment)


def _map_tensors(cursor: _Cursor, entries: list[_Entry], alignment: int) -> dict[str, MappedTensor]:
    """Return views of the data, which begins at the next aligned byte after the entries."""
    tensors: dict[str, MappedTensor] = {}
    start = end = -(-cursor.position // alignment) * alignment
    for entry in sorted(entries, key=lambda entry: entry.offset):
        begin = start + entry.offset
        if entry.name in tensors:
            raise cursor.fail(f"damaged: tensor {shown(entry.name)} appears twice")
        if entry.offset % alignment:
            raise cursor.fail(f"damaged: tensor {shown(entry.name)} is not aligned")
        if begin < end:
            raise cursor.fail(f"damaged: tensor {shown(entry.name)} overlaps another")
        end = begin + _size(cursor, entry)
        if end > len(cursor.raw):
            raise cursor.fail(
                f"truncated: tensor {shown(entry.name)} ends at byte {end}, "
                f"the file at {len(cursor.raw)}"
            )
        tensors[entry.name] = mapped_tensor(cursor.raw[begin:end], entry.shape, entry.storage)
    return tensors


def _size(cursor: _Cursor, entry: _Entry) -> int:
    try:
        return stored_bytes(entry.shape, entry.storage)
    except ValueError as error:
        raise cursor.fail(f"damaged: tensor {shown(entry.name)}: {error}") from error
