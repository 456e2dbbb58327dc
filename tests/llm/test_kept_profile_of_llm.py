"""A model in this process keeps a profile current, as a server does."""

from __future__ import annotations

from pathlib import Path

from small_model import AT_ONCE

from headway import LLM, GenerationParams
from headway.profiles.profile import read_profile


def test_the_profile_is_written_when_the_model_is_closed(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    costs = {**AT_ONCE, "decode_ms_per_sequence": 0.05}
    with LLM(model, executor="simulated", keep_profile=str(path), **costs) as llm:
        llm.generate(["some words"] * 20, GenerationParams(max_tokens=200, seed=1))
    assert read_profile(path).name.startswith(f"{model.name}, simulated executor")
