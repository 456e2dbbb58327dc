"""Where recorded workloads are read from."""

from __future__ import annotations

import os
from pathlib import Path

from headway.workload import WorkloadError

VARIABLE = "HEADWAY_TRACES"
_BESIDE_THE_REPOSITORY = Path(__file__).parents[1] / ".." / "shared" / "traces"


def trace(name: str) -> Path:
    """Return the path of a trace, from the folder that ``HEADWAY_TRACES`` names, if it is set.

    Raises:
        WorkloadError: it isn't there.
    """
    folder = Path(os.environ.get(VARIABLE) or _BESIDE_THE_REPOSITORY).resolve()
    path = folder / name
    if not path.is_file():
        raise WorkloadError(f"no trace {name} in {folder}: set {VARIABLE} to the folder of traces")
    return path
