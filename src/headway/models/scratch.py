"""Directories for unfinished downloads, and the removal of those that a killed process left.

Each holds a file that its owner keeps locked. The kernel frees the lock when the owner ends,
however it ends; unlike a process id, this also holds between containers that share a directory.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = ".fetch-"
_UNLOCKED_PREFIX: Final = ".new-fetch-"
_LOCK: Final = "lock"


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Give an empty directory in ``parent``, gone afterwards; first sweep what others left there.

    Raises:
        OSError: it can't be made.
    """
    _sweep(parent)
    unlocked = Path(tempfile.mkdtemp(dir=parent, prefix=_UNLOCKED_PREFIX))
    path = parent / (_PREFIX + unlocked.name.removeprefix(_UNLOCKED_PREFIX))
    with (unlocked / _LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unlocked.rename(path)  # under this name it is locked from the first moment
            yield path
        finally:
            shutil.rmtree(unlocked, ignore_errors=True)
            shutil.rmtree(path, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove the directories whose owners have ended."""
    for path in parent.glob(_PREFIX + "*"):
        try:
            with (path / _LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # still in use, gone meanwhile, or not ours
            continue
