"""Tokenizers that several tests of the text layer share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sample_texts import CODE, PROSE, sample_texts
from synthetic_vocabularies import byte_level_metadata, sentencepiece_metadata

from headway.models.loading import open_checkpoint
from headway.text.loading import load_tokenizer
from headway.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_level_fields() -> dict[str, Any]:
    """A small byte-level BPE vocabulary as GGUF metadata."""
    return byte_level_metadata([*PROSE, *CODE, *sample_texts(9, 150, special=False)], "smollm")


@pytest.fixture(scope="session")
def sentencepiece_fields() -> dict[str, Any]:
    """A small SentencePiece vocabulary as GGUF metadata."""
    return sentencepiece_metadata(3, [*PROSE, *CODE])


@pytest.fixture(scope="session")
def byte_level(byte_level_fields: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(None, {}, byte_level_fields)


@pytest.fixture(scope="session")
def sentencepiece(sentencepiece_fields: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(None, {}, sentencepiece_fields)


@pytest.fixture(scope="session", params=["byte_level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each kind of tokenizer in turn."""
    made: Tokenizer = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="session")
def smollm2_fields(smollm2_gguf: Path) -> dict[str, Any]:
    """The metadata of the real model."""
    fields = open_checkpoint(smollm2_gguf).tokenizer.gguf_metadata
    assert fields is not None
    return dict(fields)


@pytest.fixture(scope="session")
def smollm2(smollm2_fields: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(None, {}, smollm2_fields)
