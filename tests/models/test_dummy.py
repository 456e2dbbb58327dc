"""Random weights in the shapes of a model whose weights are not at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import write_directory

from headway.errors import ModelError
from headway.models.dummy import DummyTensor, dummy_tensors
from headway.models.loading import open_dummy
from headway.models.tensors import BLOCKS
from headway.testing.tiny_models import tiny_config


def write_dummy(folder: Path, **config: Any) -> Path:
    """Write a directory without weights."""
    write_directory(folder, config=config)
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize("storage", BLOCKS)
def test_matrices_keep_the_size_of_what_goes_through_them(storage: str) -> None:
    columns = 512
    matrix = DummyTensor("model.layers.3.mlp.up_proj.weight", (300, columns), storage)
    values = matrix.to_float32()
    assert values.shape == matrix.shape
    assert matrix.data.shape == (300, columns // BLOCKS[storage][0] * BLOCKS[storage][1])
    assert np.isfinite(values).all()
    deviation = float(values.std()) * columns**0.5
    assert 0.7 < deviation < 1.45
    assert abs(float(values.mean())) < 0.15 * float(values.std())
    assert len(np.unique(values, axis=0)) == 300, "no row repeats another"


def test_every_reading_gives_the_same_and_every_tensor_its_own() -> None:
    tensors = dummy_tensors(tiny_config(), "BF16")
    one, other = (tensors[f"model.layers.{n}.mlp.down_proj.weight"] for n in (0, 1))
    assert np.array_equal(one.data, one.data)
    assert not np.array_equal(one.data, other.data)
    assert (tensors["model.norm.weight"].to_float32() == 1).all()


def test_they_are_the_same_in_every_process() -> None:
    code = "from headway.models.dummy import DummyTensor as D; import zlib\n"
    code += "print(zlib.crc32(D('a.weight', (64, 32), 'Q4_1').data))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.parametrize(
    ("storage", "matrices", "table"),
    [("F16", "F16", "F16"), ("Q8_0", "Q8_0", "Q8_0"), ("Q4_0", "Q4_0", "Q8_0")],
)
def test_the_format_is_that_of_the_matrices(storage: str, matrices: str, table: str) -> None:
    tensors = dummy_tensors(tiny_config(attention_bias=True), storage)
    assert tensors["model.layers.0.self_attn.q_proj.weight"].format == matrices
    assert tensors["model.embed_tokens.weight"].format == table
    assert tensors["lm_head.weight"].format == table
    assert tensors["model.norm.weight"].format == "F32"
    assert (tensors["model.layers.0.self_attn.q_proj.bias"].to_float32() == 0).all()


@pytest.mark.parametrize(
    ("stated", "storage"),
    [
        ({"torch_dtype": "bfloat16"}, "BF16"),
        ({"dtype": "float16"}, "F16"),
        ({"dtype": "float32", "torch_dtype": "bfloat16"}, "F32"),
        ({}, "F32"),
    ],
)
def test_the_format_is_what_the_configuration_states(
    tmp_path: Path, stated: dict[str, Any], storage: str
) -> None:
    checkpoint = open_dummy(write_dummy(tmp_path, **stated), None)
    assert checkpoint.tensors["model.embed_tokens.weight"].format == storage


def test_what_has_no_format_or_no_shape_is_refused(tmp_path: Path) -> None:
    folder = write_dummy(tmp_path, dtype="float8")
    with pytest.raises(ModelError, match=r"config.json: dtype is 'float8'; known are float32"):
        open_dummy(folder, None)
    with pytest.raises(ModelError, match=r"can't be Q4_K: tensor \S+ a row of 64 is no whole"):
        open_dummy(folder, "Q4_K")
    with pytest.raises(ModelError, match="dummy weights need a directory"):
        open_dummy(folder / "config.json", None)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        open_dummy(folder, "F32")
