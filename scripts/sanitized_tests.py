"""Run pytest on the native kernels of one folder, or fail if others are loaded or these have no
sanitizer.

    python scripts/sanitized_tests.py FOLDER PYTEST-ARGUMENTS...
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_MARKS = (b"__asan_init", b"__tsan_init")


def main(folder: str, *arguments: str) -> int:
    """Return the exit status of the tests."""
    from headway.kernels import _native

    loaded = Path(_native.__file__).resolve()
    if not loaded.is_relative_to(Path(folder).resolve()):
        sys.exit(f"the kernels under test are not of {folder}: {loaded} was loaded")
    if not any(mark in loaded.read_bytes() for mark in _MARKS):
        sys.exit(f"{loaded} was built without a sanitizer")
    print(f"sanitized kernels: {loaded}", flush=True)
    status = int(pytest.main(list(arguments)))
    if sys.modules["headway.kernels._native"] is not _native:
        sys.exit("a test has put other kernels in the place of the sanitized ones")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
