"""The GGUF reader against the reference writer, and against damage."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import random_blocks

from headway.errors import ModelError
from headway.models import gguf_file
from headway.models.gguf_file import GGUFFile, read_gguf
from headway.models.tensors import BLOCKS

BLOCK_FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
QUANTISABLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16", "F32"]


def read(path: Path, content: bytes) -> GGUFFile:
    path.write_bytes(content)
    return read_gguf(path)


def small_file(path: Path) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("words", ["a", "", "grün", "\n"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("flags", [True, False])
    writer.add_float32("small", 1e-5)
    writer.add_float64("exact", 0.1)
    writer.add_uint64("big", 2**63)
    writer.add_int8("negative", -5)
    writer.add_bool("yes", True)
    writer.add_tensor("a", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("b", np.ones((3, 5), np.float16))
    kind = GGMLQuantizationType.Q4_1
    writer.add_tensor("c", random_blocks(2, 64, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def field(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def entry(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file_bytes(
    *,
    fields: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    data: bytes = b"",
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(fields))
    head += b"".join(fields) + b"".join(entries)
    return head + bytes(-len(head) % 32) + data


def test_metadata_are_plain_values(tmp_path: Path) -> None:
    metadata = read(tmp_path / "m.gguf", small_file(tmp_path / "w.gguf")).metadata
    assert metadata == {
        "general.architecture": "llama",
        "words": ["a", "", "grün", "\n"],
        "numbers": [1, -2, 3],
        "flags": [True, False],
        "small": 1e-5,
        "exact": 0.1,
        "big": 2**63,
        "negative": -5,
        "yes": True,
    }
    plain = (str, int, float, bool, list)
    assert all(type(value) in plain for value in metadata.values())


def test_metadata_agree_with_the_reference_reader(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    small_file(path)
    theirs = {f.name: f.contents() for f in gguf.GGUFReader(path).fields.values()}
    for key, value in read_gguf(path).metadata.items():
        assert np.float32(value) == theirs[key] if key == "small" else value == theirs[key]


@pytest.mark.parametrize("storage", sorted({*BLOCK_FORMATS, *QUANTISABLE}))
def test_every_format_dequantises_as_the_reference_does(storage: str, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[storage]
    if storage in QUANTISABLE:
        values = np.random.default_rng(1).standard_normal((7, 512)).astype(np.float32)
        stored = gguf.quants.quantize(values, kind)
    else:
        stored = random_blocks(7, 512, kind)
    expected = gguf.quants.dequantize(stored.copy(), kind)
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    tensor = read_gguf(path).tensors["t"]

    assert tensor.format == storage
    assert tensor.shape == (7, 512)
    assert tensor.data.shape == (7, stored.view(np.uint8).shape[1])
    assert tensor.data.tobytes() == stored.tobytes()
    found = tensor.to_float32()
    assert found.dtype == np.float32
    assert found.flags.writeable
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(found, expected)


HUGE = struct.pack("<Q", 2**62)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"GG", "not a GGUF file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "not a GGUF file"),
        (b"GGUF", "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not supported"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "truncated or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "truncated or damaged"),
        (file_bytes(fields=[HUGE + bytes(64)]), "truncated or damaged"),
        (file_bytes(fields=[field("k", 8, HUGE)]), "truncated or damaged"),
        (file_bytes(fields=[field("k", 9, struct.pack("<I", 8) + HUGE)]), "claims"),
        (file_bytes(fields=[field("k", 9, struct.pack("<I", 0) + HUGE)]), "claims"),
        (file_bytes(fields=[field("k", 9, struct.pack("<IQ", 10, 10**6))]), "truncated"),
        (
            file_bytes(fields=[field("k", 9, struct.pack("<IQ", 8, 2) + HUGE + bytes(32))]),
            "runs past the end",
        ),
        (
            file_bytes(fields=[field("k", 9, struct.pack("<IQ", 9, 1) + bytes(32))]),
            "unknown type 9",
        ),
        (file_bytes(fields=[field("k", 13, bytes(32))]), "unknown type 13"),
        (file_bytes(fields=[field("k", 8, struct.pack("<Q", 1) + b"\xff")]), "not UTF-8"),
        (file_bytes(fields=[field("k", 7, b"\1")] * 2), "'k' appears twice"),
        (
            file_bytes(fields=[field("general.alignment", 4, struct.pack("<I", 0))]),
            "general.alignment is 0",
        ),
        (file_bytes(fields=[field("general.alignment", 8, text("32"))]), "general.alignment"),
        (file_bytes(entries=[entry("t", [])]), "has 0 axes"),
        (file_bytes(entries=[entry("t", [1] * 5)]), "has 5 axes"),
        (file_bytes(entries=[entry("t", [8], kind=16)]), "stored as IQ2_XXS"),
        (file_bytes(entries=[entry("t", [8], kind=9999)]), "unknown storage type 9999"),
        (file_bytes(entries=[entry("t", [2**63, 2**63])], data=bytes(64)), "truncated"),
        (file_bytes(entries=[entry("t", [0, 2**63])], data=bytes(64)), "no elements"),
        (file_bytes(entries=[entry("t", [33], kind=3)], data=bytes(64)), "no whole number"),
        (file_bytes(entries=[entry("t", [8], offset=2**63)], data=bytes(64)), "truncated"),
        (file_bytes(entries=[entry("t", [8], offset=4)], data=bytes(64)), "not aligned"),
        (file_bytes(entries=[entry("t", [8])] * 2, data=bytes(64)), "appears twice"),
        (file_bytes(entries=[entry("t", [8]), entry("u", [8])], data=bytes(64)), "overlaps"),
        (file_bytes(entries=[entry("t", [8])], data=bytes(31)), "ends at byte"),
    ],
)
def test_damage_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read(tmp_path / "m.gguf", content)
    message = str(caught.value)
    assert complaint in message
    assert str(tmp_path / "m.gguf") in message
    assert "\n" not in message


def test_the_hand_made_files_are_otherwise_good(tmp_path: Path) -> None:
    file = read(
        tmp_path / "m.gguf",
        file_bytes(
            fields=[field("general.alignment", 4, struct.pack("<I", 8)), field("k", 7, b"\1")],
            entries=[entry("t", [4, 2], offset=32), entry("u", [8], kind=1, offset=0)],
            data=bytes(64),
        ),
    )
    assert file.metadata["k"] is True
    assert {n: (t.shape, t.format) for n, t in file.tensors.items()} == {
        "u": ((8,), "F16"),
        "t": ((2, 4), "F32"),
    }


def test_truncation_anywhere_is_refused(tmp_path: Path) -> None:
    good = small_file(tmp_path / "w.gguf")
    # The writer pads the last tensor; what is cut there is no loss.
    end = len(good.rstrip(b"\0"))
    for length in range(end - 1):
        with pytest.raises(ModelError):
            read(tmp_path / "m.gguf", good[:length])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small_file(tmp_path_factory.mktemp("gguf") / "w.gguf")


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_flipped_bytes_raise_only_model_errors(good: bytes, data: Any, tmp_path: Path) -> None:
    content = bytearray(good)
    header = good.index(b"\0\0\x80\x3f")  # 1.0, the second value of the first tensor
    for at in data.draw(st.lists(st.integers(0, header), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    try:
        file = read(tmp_path / "m.gguf", bytes(content))
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017 - any error is fine, a long one is not
        return
    for tensor in file.tensors.values():
        with np.errstate(all="ignore"):
            assert tensor.to_float32().shape == tensor.shape


def test_the_numbers_of_storage_types_are_those_of_the_reference() -> None:
    assert {
        kind.value: kind.name for kind in GGMLQuantizationType if kind.name in BLOCKS
    } == gguf_file._STORAGE
