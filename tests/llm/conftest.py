"""Fixtures of the tests of the Python API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_model import AT_ONCE, write_model

from headway import LLM


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEADWAY_") and name != "HEADWAY_CACHE":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model on disk."""
    return write_model(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture
def llm(model: Path) -> Iterator[LLM]:
    """The small model on the simulated executor, which answers arbitrary tokens at once."""
    with LLM(model, executor="simulated", max_num_seqs=4, num_blocks=256, **AT_ONCE) as llm:
        yield llm
