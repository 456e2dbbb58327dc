"""Tokenizers from ``tokenizer.json``, compared with the library that defines the format."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import CODE, PROSE, sample_texts
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from headway.errors import ModelError
from headway.text.loading import load_tokenizer
from headway.text.tokenizer import Tokenizer

CONFIG = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CORPUS = [*PROSE, *CODE, *sample_texts(2, 100, special=False)]


def byte_level_library() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(CORPUS, trainer)
    library.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    return library


def llama_library() -> tokenizers.Tokenizer:
    """In the way of Llama 2: spaces as marks, byte fallback, a space in front of the text."""
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIAL + BYTES, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    fields = json.loads(library.to_str())
    # The trainer can only add byte tokens as special ones; in a Llama they are plain tokens.
    fields["added_tokens"] = [t for t in fields["added_tokens"] if t["content"] in SPECIAL]
    library = tokenizers.Tokenizer.from_str(json.dumps(fields))
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return library


LIBRARIES = {"byte level": byte_level_library(), "llama": llama_library()}


def loaded(library: tokenizers.Tokenizer, **config: Any) -> Tokenizer:
    return load_tokenizer(library.to_str().encode(), {**CONFIG, **config}, None)


@pytest.mark.parametrize("name", LIBRARIES)
def test_ids_and_text_equal_the_library(name: str) -> None:
    library = LIBRARIES[name]
    tokenizer = loaded(library)
    for text in sample_texts(8, 400):
        ids = library.encode(text).ids
        assert tokenizer.encode(text, add_special_tokens=True) == ids
        for skip in (True, False):
            assert tokenizer.decode(ids, skip_special_tokens=skip) == library.decode(
                ids, skip_special_tokens=skip
            )


@pytest.mark.parametrize("name", LIBRARIES)
def test_special_text_can_stay_text(name: str) -> None:
    tokenizer = loaded(LIBRARIES[name])
    text = "a</s> <tool>b"
    parsed = tokenizer.encode(text, add_special_tokens=False)
    plain = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    assert 2 in parsed
    assert not any(map(tokenizer.is_special, plain))
    assert tokenizer.decode(plain) == text


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@pytest.mark.parametrize("name", LIBRARIES)
def test_the_lower_bound_of_tokens_holds(name: str, text: str) -> None:
    tokenizer = loaded_once(name)
    assert tokenizer.min_tokens_for(text) <= len(tokenizer.encode(text, add_special_tokens=True))


@cache
def loaded_once(name: str) -> Tokenizer:
    return loaded(LIBRARIES[name])


@given(ids=st.lists(st.integers(3, 700)))
def test_decoding_any_byte_level_ids_equals_the_library(ids: list[int]) -> None:
    library = LIBRARIES["byte level"]
    assert loaded_once("byte level").decode(ids) == library.decode(ids)


def test_named_tokens_and_framing() -> None:
    llama = loaded_once("llama")
    assert (llama.bos_token, llama.eos_token_id) == ("<s>", 2)
    assert llama.encode("", add_special_tokens=True) == [1]
    assert llama.min_tokens_for("") == 1
    plain = loaded(LIBRARIES["byte level"], add_eos_token=True)
    assert plain.encode("", add_special_tokens=True) == [2]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"model": {"type": "BPE"}}', b"\xff"])
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_tokenizer(content, {}, None)


def test_an_unknown_decoder_is_refused() -> None:
    fields = json.loads(LIBRARIES["llama"].to_str())
    fields["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(ModelError, match="WordPiece is not supported"):
        load_tokenizer(json.dumps(fields).encode(), {}, None)


def test_a_bos_that_is_no_token_is_refused() -> None:
    with pytest.raises(ModelError, match=r"bos_token '<none>'"):
        loaded(LIBRARIES["llama"], bos_token="<none>")


def test_truncation_and_padding_of_the_file_are_left_out() -> None:
    library = tokenizers.Tokenizer.from_str(LIBRARIES["byte level"].to_str())
    library.enable_truncation(4)
    library.enable_padding(length=64)
    tokenizer = loaded(library)
    assert tokenizer.decode(tokenizer.encode("much longer than four", add_special_tokens=True)) == (
        "much longer than four"
    )


@pytest.mark.parametrize(
    "normalizer",
    [normalizers.NFC(), normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()],
)
def test_a_normaliser_that_shortens_loosens_the_lower_bound(normalizer: Any) -> None:
    library = tokenizers.Tokenizer.from_str(LIBRARIES["byte level"].to_str())
    library.normalizer = normalizer
    tokenizer = loaded(library)
    for text in ("e\u0301" * 50, "  " * 300, "ﬁ①ｅ" * 40, "K" * 60, *sample_texts(6, 50)):
        ids = tokenizer.encode(text, add_special_tokens=True)
        assert tokenizer.min_tokens_for(text) <= len(ids), text
