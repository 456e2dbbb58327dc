"""The safetensors reader against the reference writer, and against damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from headway.errors import ModelError
from headway.models.safetensors_file import open_safetensors

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.ones(5, np.float16),
}
GOOD = save(ARRAYS, metadata={"format": "pt"})


def file_of(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def with_header(header: Any, data: bytes = bytes(64)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (16,), offsets: Any = (0, 64)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_reads_what_the_reference_writes(tmp_path: Path) -> None:
    tensors = open_safetensors(file_of(tmp_path / "m.safetensors", GOOD))
    assert tensors.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(tensors[name].to_float32(), array.astype(np.float32))


def test_the_bytes_are_mapped_and_can_not_be_written(tmp_path: Path) -> None:
    tensor = open_safetensors(file_of(tmp_path / "m.safetensors", GOOD))["a"]
    assert not tensor.data.flags.writeable
    assert not tensor.data.flags.owndata


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"abc", "only 3 bytes"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a safetensors file"),
        (b"\x80\x04\x95\x00\x00\x00\x00\x00" + bytes(100), "not a safetensors file"),
        ((10**7).to_bytes(8, "little") + b'{"a', "truncated inside the header"),
        (with_header(b"{]"), "not valid JSON"),
        (with_header({"a": 1}), "damaged header entry"),
        (with_header({"a": entry(dtype="F8_E4M3")}), "stored as 'F8_E4M3'"),
        (with_header({"a": entry(dtype=["F32"])}), "stored as"),
        (with_header({"a": entry(shape=[-16])}), "invalid shape"),
        (with_header({"a": entry(shape=[0, 2**70])}), "invalid shape"),
        (with_header({"a": entry(shape=[2**70])}), "do not match its shape"),
        (with_header({"a": entry(shape="16")}), "invalid shape"),
        (with_header({"a": entry(offsets=[0])}), "invalid data_offsets"),
        (with_header({"a": entry(offsets=[64, 0])}), "do not match"),
        (with_header({"a": entry(offsets=[64, 128])}), "truncated"),
        (with_header({"a": entry(shape=[8], offsets=[8, 40])}), "leaves a gap"),
        (with_header({"a": entry(), "b": entry()}), "overlaps another"),
        (with_header({"a": entry(shape=[8], offsets=[0, 32])}), "32 bytes after"),
    ],
)
def test_damage_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.safetensors", content)
    with pytest.raises(ModelError) as caught:
        open_safetensors(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncation_anywhere_is_refused(tmp_path: Path) -> None:
    for length in range(len(GOOD)):
        with pytest.raises(ModelError):
            open_safetensors(file_of(tmp_path / "m.safetensors", GOOD[:length]))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    flips=st.lists(
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), min_size=1, max_size=4
    )
)
def test_flipped_bytes_raise_only_model_errors(
    flips: list[tuple[int, int]], tmp_path: Path
) -> None:
    content = bytearray(GOOD)
    for at, mask in flips:
        content[at] ^= mask
    path = file_of(tmp_path / "m.safetensors", bytes(content))
    try:
        tensors = open_safetensors(path)
    except ModelError:
        return
    for tensor in tensors.values():
        with np.errstate(all="ignore"):
            tensor.to_float32()
    try:  # what we accept, the reference accepts
        with safe_open(path, "numpy") as reference:
            assert set(reference.keys()) == set(tensors)
    except SafetensorError as error:
        pytest.fail(f"accepted a file that the reference refuses: {error}")
