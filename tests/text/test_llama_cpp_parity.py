"""Ids are compared with llama.cpp's, on the real model and on vocabularies made here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_oracle import TokenizeServer, binary, running_server, tokenize_file
from recorded_answers import assert_equal_to_llama_cpp
from sample_texts import CODE, PROSE, sample_texts
from synthetic_vocabularies import sentencepiece_metadata, write_vocabulary

from headway.text.loading import load_tokenizer
from headway.text.tokenizer import Tokenizer

# "tekken" is left out: llama.cpp approximates its pattern, Headway has the original.
PRE_TOKENIZERS = ["default", "gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35"]


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path) -> Iterator[TokenizeServer | None]:
    if binary("llama-server") is None:
        yield None  # the recorded answers speak for it
        return
    with running_server(smollm2_gguf) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("parse_special", [True, False])
def test_smollm2_ids_equal_llama_cpp(
    server: TokenizeServer | None, smollm2: Tokenizer, parse_special: bool
) -> None:
    texts = sample_texts(20261129, 2000)
    ours = smollm2.encode_batch(texts, add_special_tokens=True, parse_special=parse_special)

    def ask() -> list[list[int]]:
        assert server is not None
        return [server.tokenize(t, add_special=True, parse_special=parse_special) for t in texts]

    key = f"smollm2 ids, parse_special {parse_special}"
    assert_equal_to_llama_cpp(key, ours, ask if server else None)


def test_smollm2_text_equals_llama_cpp(server: TokenizeServer | None, smollm2: Tokenizer) -> None:
    prompts = [smollm2.encode(t, add_special_tokens=False) for t in sample_texts(7, 200)]
    ours = [smollm2.decode(ids, skip_special_tokens=False) for ids in prompts]

    def ask() -> list[str]:
        assert server is not None
        return [server.detokenize(ids) for ids in prompts]

    assert_equal_to_llama_cpp("smollm2 text", ours, ask if server else None)


def assert_equal_to_command(
    key: str, fields: dict[str, Any], text: str, folder: Path, *, parse_special: bool
) -> None:
    tokenizer = load_tokenizer(None, {}, fields)
    ours = tokenizer.encode(text, add_special_tokens=True, parse_special=parse_special)

    def ask() -> list[list[int]]:
        vocabulary, text_file = folder / "vocabulary.gguf", folder / "text.txt"
        write_vocabulary(vocabulary, fields)
        text_file.write_bytes(text.encode())
        return [tokenize_file(vocabulary, text_file, add_special=True, parse_special=parse_special)]

    assert_equal_to_llama_cpp(key, [ours], ask if binary("llama-tokenize") else None)


@pytest.mark.parametrize("parse_special", [True, False])
@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_each_pre_tokenizer_cuts_as_llama_cpp(
    byte_level_fields: dict[str, Any], tmp_path: Path, pre: str, parse_special: bool
) -> None:
    fields = {**byte_level_fields, "tokenizer.ggml.pre": pre}
    text = "\n~\n".join(sample_texts(5, 300))
    key = f"pre-tokenizer {pre}, parse_special {parse_special}"
    assert_equal_to_command(key, fields, text, tmp_path, parse_special=parse_special)


@pytest.mark.parametrize("add_space_prefix", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_sentencepiece_joins_as_llama_cpp(
    tmp_path: Path, seed: int, add_space_prefix: bool
) -> None:
    fields = sentencepiece_metadata(seed, [*PROSE, *CODE], add_space_prefix=add_space_prefix)
    text = "\n~\n".join([*sample_texts(seed, 300), "[INST] hi [/INST] a <tool>b"])
    key = f"sentencepiece {seed}, add_space_prefix {add_space_prefix}"
    assert_equal_to_command(key, fields, text, tmp_path, parse_special=True)


def test_sentencepiece_reads_special_text_as_plain(
    tmp_path: Path, sentencepiece_fields: dict[str, Any]
) -> None:
    # Without "<s>" and the like: llama.cpp may join plain characters into those control tokens.
    texts = sample_texts(11, 300, special=False)
    text = "\n~\n".join([*texts, "[INST] hi [/INST] a <tool>b"])
    key = "sentencepiece, special text as plain"
    assert_equal_to_command(key, sentencepiece_fields, text, tmp_path, parse_special=False)


@pytest.mark.parametrize(("add_bos", "add_eos"), [(True, False), (False, False), (True, True)])
def test_framing_as_llama_cpp(
    tmp_path: Path, byte_level_fields: dict[str, Any], add_bos: bool, add_eos: bool
) -> None:
    fields = {
        **byte_level_fields,
        "tokenizer.ggml.add_bos_token": add_bos,
        "tokenizer.ggml.add_eos_token": add_eos,
    }
    key = f"framing, add_bos {add_bos}, add_eos {add_eos}"
    assert_equal_to_command(key, fields, "a fox <|im_end|>", tmp_path, parse_special=True)
