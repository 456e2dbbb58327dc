"""The files and figures that the comparison with peers makes itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers.accuracy import parse_distance
from benchmarks.peers.gguf_random import gguf_name
from benchmarks.peers.hugging_face import write_safetensors
from benchmarks.peers.install import PeerError
from benchmarks.peers.scores import distance, filled, save, scored
from benchmarks.peers.shapes import SHAPES, Shape
from benchmarks.peers.weights import model_config, random_tensors, to_bfloat16

from headway.models.architecture import expected_tensors
from headway.models.safetensors_file import open_safetensors


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_shapes_are_configurations_that_headway_reads(shape: Shape) -> None:
    config = model_config(shape)
    assert config.tie_word_embeddings
    for name, _ in expected_tensors(config):
        assert gguf_name(name)


def test_parameters_are_as_many_as_the_names_say() -> None:
    expected = {"smollm2-135m": 135e6, "qwen3-0.6b": 596e6, "llama-3.2-1b": 1236e6}
    for name, shape in SHAPES.items():
        sizes = [np.prod(dims) for _, dims in expected_tensors(model_config(shape))]
        assert sum(sizes) == pytest.approx(expected[name], rel=0.01)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_written_weights_read_back(tmp_path: Path, dtype: str) -> None:
    config = replace(
        model_config(SHAPES["qwen3-0.6b"]),
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
    )
    path = tmp_path / "model.safetensors"
    dimensions = dict(expected_tensors(config))
    write_safetensors(path, dimensions, random_tensors(config), dtype)  # type: ignore[arg-type]  # a parameter of the test is a plain str
    stored = open_safetensors(path)
    assert stored.keys() == dimensions.keys()
    for name, values in random_tensors(config):
        tolerance = 2**-8 if dtype == "bfloat16" else 0
        np.testing.assert_allclose(stored[name].to_float32(), values, rtol=tolerance)


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    one, step = 1.0, 2.0**-7
    values = np.array([one + step / 2, one + 1.5 * step, one + 0.6 * step, -2.0], np.float32)
    wide = to_bfloat16(values).astype(np.uint32) << 16
    assert wide.view(np.float32).tolist() == [one, one + 2 * step, one + step, -2.0]


def test_distance_of_the_same_is_zero(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).standard_normal((3, 8, 20)).astype(np.float32)
    save(str(tmp_path / "a"), logits)
    exact = np.load(tmp_path / "a")
    assert exact.shape == (3, 3, 20)  # positions 4, 5 and 6 of 0 to 7
    found = distance(exact, exact)
    assert (found.mean_kl, found.top_1, found.positions) == (0.0, 1.0, 9)


def test_distance_is_the_divergence() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    found = distance(np.log(p)[None, None], np.log(q)[None, None])
    assert found.mean_kl == pytest.approx((p * np.log(p / q)).sum())
    assert found.top_1 == 0.0


def test_what_is_not_known_counts_together() -> None:
    p = np.array([0.5, 0.2, 0.2, 0.1])
    q = np.array([0.4, 0.3, 0.15, 0.15])
    known = filled([{0: float(np.log(0.4)), 1: float(np.log(0.3))}], 1, 4)
    found = distance(np.log(p)[None, None], known[None])
    merged = 0.5 * np.log(0.5 / 0.4) + 0.2 * np.log(0.2 / 0.3) + 0.3 * np.log(0.3 / 0.3)
    assert found.mean_kl == pytest.approx(merged, abs=1e-6)
    assert found.mean_kl <= (p * np.log(p / q)).sum()
    assert found.top_1 == 1.0


def test_positions_that_an_engine_does_not_tell_stay_unknown(tmp_path: Path) -> None:
    rows = filled([{1: -0.5}, {0: -0.25}, {2: -0.125}, {}], 4, 3)
    save(str(tmp_path / "a"), [rows])
    kept = np.load(tmp_path / "a")
    assert scored(4) == slice(2, 3)
    assert kept.shape == (1, 1, 3)
    assert kept[0, 0, 2] == -0.125
    assert np.isnan(kept[0, 0, :2]).all()


def test_llama_cpp_s_figures_are_read() -> None:
    text = "Mean    KLD:   0.004712 ±   0.000123\nSame top p: 95.833 ± 0.442 %\n"
    found = parse_distance(text)
    assert (found.mean_kl, found.top_1, found.positions) == (0.004712, 0.95833, 2040)
    with pytest.raises(PeerError, match="no divergence"):
        parse_distance("error: out of memory")


def test_configurations_are_json() -> None:
    assert all(json.loads(json.dumps(shape.config)) == shape.config for shape in SHAPES.values())
