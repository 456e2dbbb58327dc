"""Makes a tokenizer from what a model's files hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import ModelError
from headway.text.tokenizer import Tokenizer


def load_tokenizer(
    tokenizer_json: bytes | None,
    tokenizer_config: Mapping[str, Any],
    gguf_metadata: Mapping[str, Any] | None,
    *,
    model_vocab_size: int | None = None,
) -> Tokenizer:
    """Build a tokenizer from ``tokenizer.json`` or from GGUF metadata.

    Args:
        tokenizer_json: content of ``tokenizer.json``.
        tokenizer_config: content of ``tokenizer_config.json``; empty if there is none.
        gguf_metadata: metadata of a GGUF file, as plain Python values.
        model_vocab_size: rows of the model's output. Matrices are often padded beyond the last
            token; the ids in between write nothing.

    Raises:
        ModelError: neither source is there, or it is damaged or of a kind not supported.
    """
    # Imported here so that a model of one format never pays for the other.
    if gguf_metadata is not None:
        from headway.text.gguf_tokenizer import tokenizer_from_gguf

        tokenizer = tokenizer_from_gguf(gguf_metadata)
    elif tokenizer_json is not None:
        from headway.text.json_tokenizer import tokenizer_from_json

        tokenizer = tokenizer_from_json(tokenizer_json, tokenizer_config)
    else:
        raise ModelError("the model has no tokenizer: tokenizer.json or GGUF metadata is needed")
    return tokenizer if model_vocab_size is None else tokenizer.padded_to(model_vocab_size)
