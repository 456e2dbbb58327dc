"""Fetches a model from the Hugging Face hub, with the optional ``huggingface_hub`` package."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from headway.errors import ModelError
from headway.models.fields import shown
from headway.models.progress import Progress

_FILES: Final = ["*.json", "*.safetensors", "*.jinja", "tokenizer*"]
_SECOND_COPIES: Final = ["*/*", "consolidated*"]
"""The same weights in another format: PyTorch's in ``original/``, ONNX, Mistral's own."""


def fetch_from_hub(repository: str, file: str | None, progress: Progress) -> Path:
    """Return the local snapshot of ``org/name``, or of one GGUF file in it.

    What was fetched before also works offline.

    Raises:
        ModelError: the package is missing, the hub can't be reached, or it has no such model.
    """
    hub = _hub_package(repository)
    progress(f"Looking for {repository} on the Hugging Face hub")
    try:
        if file is not None:
            return Path(hub.hf_hub_download(repository, file))
        snapshot = Path(
            hub.snapshot_download(repository, allow_patterns=_FILES, ignore_patterns=_SECOND_COPIES)
        )
    except _hub_errors() as error:
        wanted = repository if file is None else f"{repository}:{file}"
        reason = shown(next(iter(str(error).strip().splitlines()), type(error).__name__))
        raise ModelError(
            f"{wanted} is no local path and could not be fetched from the Hugging Face hub "
            f"({type(error).__name__}: {reason})"
        ) from error
    if not (snapshot / "config.json").exists():
        raise ModelError(
            f"{repository}: has no config.json on the hub; name a GGUF file in it as "
            f"{repository}:FILE.gguf"
        )
    return snapshot


def _hub_package(repository: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ModelError(
            f"{repository} is no local path; to fetch it from the Hugging Face hub: "
            "pip install 'headway[hub]'"
        ) from error
    return huggingface_hub


def _hub_errors() -> tuple[type[Exception], ...]:
    """Return every error that the package declares, and the roots of those it lets through.

    Its HTTP library has changed between versions; its error module imports that library's root.
    """
    from huggingface_hub import errors

    declared = [
        e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)
    ]
    return (OSError, ValueError, *declared)
