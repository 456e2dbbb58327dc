"""Remembers beside a file that its content was checked, so that it is hashed only once.

The note ``<file>.verified`` holds size, modification time and SHA-256. It guards against damage and
mix-ups, not against someone who can write to the directory and means harm.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def is_verified(path: Path, size: int, sha256: str) -> bool:
    """Say if the file has this content, hashing it only if no note says so.

    Raises:
        OSError: the file is not there or can't be read.
    """
    stat = path.stat()
    if stat.st_size != size:
        return False
    if _noted(path) == _note(stat, sha256):
        return True
    if digest_of(path) != sha256:
        return False
    _write(path, _note(stat, sha256))
    return True


def note_verified(path: Path, sha256: str) -> None:
    """Remember that the file, as it is now, was found to have this SHA-256."""
    _write(path, _note(path.stat(), sha256))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of the content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note(stat: os.stat_result, sha256: str) -> bytes:
    return f"{stat.st_size} {stat.st_mtime_ns} {sha256}\n".encode()


def _note_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _noted(path: Path) -> bytes | None:
    try:
        return _note_path(path).read_bytes()
    except OSError:  # then the file itself is looked at
        return None


def _write(path: Path, note: bytes) -> None:
    try:
        _note_path(path).write_bytes(note)
    except OSError:  # a cache that is read-only works too; its files are hashed at each start
        return
