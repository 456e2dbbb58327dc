"""Encoding and decoding with vocabularies from GGUF metadata."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import sample_texts

from headway.errors import ModelError, RequestError
from headway.text.loading import load_tokenizer
from headway.text.tokenizer import Tokenizer

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def test_smollm2_known_ids(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("The quick brown fox 123", add_special_tokens=True)
    assert ids == [504, 2365, 6354, 16438, 216, 33, 34, 35]  # digits one by one, no BOS
    assert smollm2.vocab_size == 49152
    assert (smollm2.bos_token, smollm2.bos_token_id) == ("<|im_start|>", 1)
    assert (smollm2.eos_token, smollm2.eos_token_id) == ("<|im_end|>", 2)


def test_special_text_is_a_token_only_if_parsed(smollm2: Tokenizer) -> None:
    text = "<|im_start|>user\nhi<|im_end|>"
    parsed = smollm2.encode(text, add_special_tokens=False)
    plain = smollm2.encode(text, add_special_tokens=False, parse_special=False)
    assert (parsed[0], parsed[-1]) == (1, 2)
    assert not any(map(smollm2.is_special, plain))
    assert smollm2.decode(plain) == text
    assert smollm2.decode(parsed) == "user\nhi"
    assert smollm2.decode(parsed, skip_special_tokens=False) == text


@given(text=TEXT, parse_special=st.booleans())
def test_text_survives_a_round_trip(tokenizer: Tokenizer, text: str, parse_special: bool) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=parse_special)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_sample_lines_survive_a_round_trip(tokenizer: Tokenizer) -> None:
    for text in sample_texts(3, 300):
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        assert tokenizer.decode(ids) == text


def test_a_batch_equals_its_members(tokenizer: Tokenizer) -> None:
    texts = ["", *sample_texts(4, 50)]
    single = [tokenizer.encode(text, add_special_tokens=True) for text in texts]
    assert tokenizer.encode_batch(texts, add_special_tokens=True) == single


@given(text=TEXT)
def test_the_lower_bound_of_tokens_holds(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=True)
    assert tokenizer.min_tokens_for(text) <= len(ids)


def test_the_lower_bound_of_tokens_is_useful(smollm2: Tokenizer) -> None:
    assert smollm2.min_tokens_for("word " * 100_000) > 5_000


def test_the_lower_bound_leaves_out_what_has_no_token(smollm2: Tokenizer) -> None:
    text = "\x04\x06" * 1000  # bytes without a token in this vocabulary
    assert smollm2.min_tokens_for(text) <= len(smollm2.encode(text, add_special_tokens=True)) == 0


@pytest.mark.parametrize("token_id", [-1, 49152, 2**40])
def test_ids_out_of_range_are_refused(smollm2: Tokenizer, token_id: int) -> None:
    for use in (smollm2.token_bytes, smollm2.token_text, lambda i: smollm2.decode([1, i])):
        with pytest.raises(RequestError, match=str(token_id)):
            use(token_id)


def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="surrogate at character 1"):
        tokenizer.encode("a\ud800", add_special_tokens=True)
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.encode_batch(["", "\udfff"], add_special_tokens=True)
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.min_tokens_for("\udfff")


def test_token_bytes_are_exact(byte_level: Tokenizer, sentencepiece: Tokenizer) -> None:
    for tokenizer in (byte_level, sentencepiece):
        text = "a 🐎 d’ď\t"
        ids = tokenizer.encode(text, add_special_tokens=False)
        joined = b"".join(map(tokenizer.token_bytes, ids)).decode()
        assert joined == (" " if tokenizer is sentencepiece else "") + text
        assert all(len(tokenizer.token_bytes(i)) <= tokenizer.max_token_bytes for i in ids)


def test_sentencepiece_puts_a_space_in_front(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("hi", add_special_tokens=True)
    assert ids[0] == sentencepiece.bos_token_id == 1
    assert sentencepiece.decode(ids) == "hi"
    assert sentencepiece.decode(ids, continuation=True) == " hi"
    assert sentencepiece.decode(sentencepiece.encode(" hi", add_special_tokens=False)) == " hi"


def test_plain_text_never_joins_into_a_control_token(
    sentencepiece: Tokenizer, sentencepiece_fields: dict[str, Any]
) -> None:
    almost = sentencepiece_fields["tokenizer.ggml.tokens"].index("<s")
    ids = sentencepiece.encode("x<s>", add_special_tokens=False, parse_special=False)
    assert almost in ids
    assert not any(map(sentencepiece.is_special, ids))


def test_a_long_segment_without_borders(sentencepiece: Tokenizer) -> None:
    text = "e" * 5000
    assert sentencepiece.decode(sentencepiece.encode(text, add_special_tokens=False)) == text


def test_padding_adds_ids_that_write_nothing(byte_level_fields: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(None, {}, byte_level_fields)
    padded = load_tokenizer(None, {}, byte_level_fields, model_vocab_size=tokenizer.vocab_size + 3)
    assert padded.vocab_size == tokenizer.vocab_size + 3
    assert padded.token_bytes(tokenizer.vocab_size + 2) == b""
    assert load_tokenizer(None, {}, byte_level_fields, model_vocab_size=1).vocab_size == (
        tokenizer.vocab_size
    )


def test_end_of_turn_is_control_whatever_the_file_says(byte_level_fields: dict[str, Any]) -> None:
    kinds = [1] * len(byte_level_fields["tokenizer.ggml.tokens"])
    tokenizer = load_tokenizer(None, {}, {**byte_level_fields, "tokenizer.ggml.token_type": kinds})
    tokens = byte_level_fields["tokenizer.ggml.tokens"]
    assert tokenizer.is_special(tokens.index("<|im_end|>"))
    assert not tokenizer.is_special(tokens.index("<|im_start|>"))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "'rwkv' is not supported"),
        ({"tokenizer.ggml.model": None}, "model is missing"),
        ({"tokenizer.ggml.pre": "made-up"}, "'made-up' is not supported"),
        ({"tokenizer.ggml.tokens": None}, "tokens is missing"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "tokens holds 1"),
        ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, "token 'a' twice"),
        ({"tokenizer.ggml.token_type": [1]}, "1 entries for"),
        ({"tokenizer.ggml.merges": ["ab"]}, "two parts"),
        ({"tokenizer.ggml.merges": ["a no-such"]}, "is not all tokens"),
        ({"tokenizer.ggml.merges": None}, "merges is missing"),
        ({"tokenizer.ggml.bos_token_id": 10**6}, "bos_token_id = 1000000"),
        ({"tokenizer.ggml.add_bos_token": "yes"}, "true or false"),
        ({"tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.eos_token_id": None}, "without"),
    ],
)
def test_wrong_metadata_is_refused(
    byte_level_fields: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    fields = {k: v for k, v in {**byte_level_fields, **changes}.items() if v is not None}
    with pytest.raises(ModelError, match=match):
        load_tokenizer(None, {}, fields)


def test_sentencepiece_without_byte_tokens_is_refused(
    sentencepiece_fields: dict[str, Any],
) -> None:
    kinds = [1 if kind == 6 else kind for kind in sentencepiece_fields["tokenizer.ggml.token_type"]]
    with pytest.raises(ModelError, match="no byte token '<0x00>'"):
        load_tokenizer(None, {}, {**sentencepiece_fields, "tokenizer.ggml.token_type": kinds})


def test_no_source_is_refused() -> None:
    with pytest.raises(ModelError, match="no tokenizer"):
        load_tokenizer(None, {}, None)
