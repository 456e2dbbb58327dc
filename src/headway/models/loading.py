"""Opens a model from a path, whatever its format."""

from __future__ import annotations

import os
from pathlib import Path

from headway.errors import ModelError
from headway.models.architecture import check_tensors
from headway.models.checkpoint import Checkpoint
from headway.models.gguf_model import open_gguf
from headway.models.hf_directory import open_directory, open_without_weights


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a Hugging Face directory or a GGUF file and check it; no weight is read yet.

    Raises:
        ModelError: the path is missing, damaged, truncated, foreign, or of a kind not supported.
    """
    if os.path.isdir(path):  # unlike Path.is_dir, false for a name that can't exist
        checkpoint = open_directory(path)
    elif os.path.exists(path):
        checkpoint = open_gguf(path)
    else:
        raise ModelError(f"{path}: no such file or directory")
    check_tensors(checkpoint)
    return checkpoint


def open_dummy(path: Path, storage: str | None) -> Checkpoint:
    """Open a Hugging Face directory with random weights instead of its own, if it has any.

    Args:
        path: of the directory, which needs no more than ``config.json`` and the tokenizer's files.
        storage: the format of the weights; None is the one that ``config.json`` states.

    Raises:
        ModelError: this is no directory, a file in it is not supported, or the format does not fit.
    """
    if not os.path.isdir(path):
        raise ModelError(
            f"{path}: dummy weights need a directory with config.json and the tokenizer's files"
        )
    return open_without_weights(path, storage)
