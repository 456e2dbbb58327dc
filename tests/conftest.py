"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

from headway.errors import ModelError
from headway.kernels.openmp import spin_briefly

spin_briefly()  # before any test imports torch: the machine may be busy with something else

# The machine that runs the tests may be slow or busy: no example may fail for its time.
hypothesis.settings.register_profile("headway", deadline=None)
hypothesis.settings.load_profile("headway")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The file of the embedded default model."""
    from headway.models.catalog import resolve

    try:
        return resolve("smollm2-135m-instruct", lambda _: None)
    except ModelError as error:
        pytest.skip(f"no SmolLM2: {error}")
