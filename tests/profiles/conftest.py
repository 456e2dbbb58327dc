"""Files of measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import HEADER, ROWS, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder of measured kernels."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    write_bundle(folder)
    return folder


@pytest.fixture
def splitwise_file(tmp_path: Path) -> Path:
    """A file of measured models."""
    file = tmp_path / "perf_model.csv"
    file.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return file
