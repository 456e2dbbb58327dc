"""Where the peers and their files lie: all below one folder, which may be removed at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HOME: Final = ROOT / ".venv-peers"
REQUIREMENTS: Final = Path(__file__).parent / "requirements"
RESULTS: Final = ROOT / "build" / "bench-peers"


def python_of(venv: str) -> Path:
    """Return the interpreter of a peer's virtual environment."""
    return HOME / venv / "bin" / "python"


def model_folder(shape: str) -> Path:
    return HOME / "models" / shape
