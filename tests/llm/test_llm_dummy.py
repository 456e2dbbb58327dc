"""Models with random weights, on every executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import write_model

from headway import LLM, GenerationParams
from headway.errors import ModelError

GREEDY = GenerationParams(max_tokens=12, temperature=0, ignore_eos=True, logprobs=1)


def without_weights(folder: Path, **stated: str) -> Path:
    """Write the small model without its weights; ``stated`` goes into config.json."""
    write_model(folder)
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | stated))
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        {"executor": "cpu"},
        {"executor": "cpu", "quantization": "int8"},
        {"executor": "cpu", "dummy_format": "Q4_0"},
        {"executor": "cpu", "dummy_format": "Q4_1", "quantization": "float32"},
        {"executor": "torch"},
        {"executor": "torch", "dtype": "bfloat16", "dummy_format": "Q8_0"},
        {"executor": "simulated"},
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_executors_take_them(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    if settings["executor"] == "torch":
        pytest.importorskip("torch")
    folder = without_weights(tmp_path / "m", torch_dtype="bfloat16")
    options = {"load_format": "dummy", "num_blocks": 16, **settings}
    params = GREEDY if settings["executor"] != "simulated" else GenerationParams(max_tokens=12)
    outputs = []
    for _ in range(2):
        with LLM(folder, **options) as llm:
            outputs.append(llm.generate([[5, 6, 7]], params)[0])
    assert outputs[0].num_output_tokens == 12
    assert outputs[0] == outputs[1] or settings["executor"] == "simulated"
    assert "the weights are random" in caplog.text


def test_weights_that_lie_there_are_not_read(tmp_path: Path) -> None:
    folder = without_weights(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"damaged")
    with LLM(folder, load_format="dummy", num_blocks=16) as llm:
        assert llm.generate([[5]], GREEDY)[0].num_output_tokens == 12


def test_a_name_that_would_be_downloaded_is_refused() -> None:
    with pytest.raises(ModelError, match="dummy weights need a directory"):
        LLM("smollm2-135m-instruct", load_format="dummy")


def test_both_executors_compute_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = without_weights(tmp_path / "m")
    options: dict[str, Any] = {"load_format": "dummy", "num_blocks": 16, "dummy_format": "Q4_1"}
    precise = {"quantization": "float32", "kv_dtype": "float32"}
    outputs = []
    for settings in ({"executor": "torch"}, precise):
        with LLM(folder, **options, **settings) as llm:
            outputs.append(llm.generate([[5, 6, 7]], GREEDY)[0].choices[0])
    one, other = outputs
    assert one.token_ids == other.token_ids
    found = [[position.token.logprob for position in choice.logprobs] for choice in outputs]
    np.testing.assert_allclose(*found, atol=1e-4)
