"""Text that comes token by token must be the text that comes at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import sample_texts

from headway.errors import RequestError
from headway.text.byte_level import CHARACTERS
from headway.text.detokenizer import IncrementalDetokenizer
from headway.text.tokenizer import Tokenizer

D_CARON, HORSE, FAMILY = "ď", "🐎", "👩‍👩‍👧"


def deltas(tokenizer: Tokenizer, ids: list[int], **options: bool) -> list[str]:
    """One delta a token, and the last one of the flush."""
    detokenizer = IncrementalDetokenizer(tokenizer, **options)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """Each byte as a token of its own."""
    texts = list(tokenizer.vocabulary.texts)
    if "<0x00>" in texts:
        return [texts.index(f"<0x{byte:02X}>") for byte in data]
    return [texts.index(CHARACTERS[byte]) for byte in data]


@given(data=st.data(), skip=st.booleans(), continuation=st.booleans())
def test_deltas_of_any_ids_join_to_the_text(
    tokenizer: Tokenizer, data: st.DataObject, skip: bool, continuation: bool
) -> None:
    # Half of the ids are single bytes, in any order, so most of them are no valid characters.
    single = byte_ids(tokenizer, bytes(range(256)))
    one = st.one_of(st.sampled_from(single), st.integers(0, tokenizer.vocab_size - 1))
    ids = data.draw(st.lists(one, max_size=60))
    options: dict[str, Any] = {"skip_special_tokens": skip, "continuation": continuation}
    assert "".join(deltas(tokenizer, ids, **options)) == tokenizer.decode(ids, **options)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_deltas_of_any_text_are_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    parts = deltas(tokenizer, byte_ids(tokenizer, text.encode()), continuation=True)
    assert "".join(parts) == text
    assert parts[-1] == ""  # nothing was left
    assert all(len(part) <= 1 for part in parts)  # each character left with its last byte


def test_deltas_of_sample_lines(smollm2: Tokenizer) -> None:
    for text in sample_texts(12, 300):
        ids = smollm2.encode(text, add_special_tokens=False)
        parts = deltas(smollm2, ids, skip_special_tokens=False)
        assert "".join(parts) == smollm2.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("text", [D_CARON, HORSE, FAMILY, f"a{FAMILY}b"])
def test_characters_of_several_byte_tokens(tokenizer: Tokenizer, text: str) -> None:
    """Case of a public report: decoding each token alone gave U+FFFD."""
    parts = deltas(tokenizer, byte_ids(tokenizer, text.encode()))
    assert "".join(parts) == text
    assert "\ufffd" not in "".join(parts)


def test_a_cut_character_shows_only_at_the_end(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, b"ok" + HORSE.encode()[:3])
    assert deltas(tokenizer, ids) == ["o", "k", "", "", "", "\ufffd"]
    assert tokenizer.decode(ids) == "ok\ufffd"


def test_control_tokens_between_the_bytes_of_a_character(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, HORSE.encode())
    special = min(tokenizer.vocabulary.special_ids)
    ids.insert(2, special)
    assert "".join(deltas(tokenizer, ids)) == HORSE
    shown = deltas(tokenizer, ids, skip_special_tokens=False)
    assert "".join(shown) == tokenizer.decode(ids, skip_special_tokens=False)
    assert tokenizer.token_text(special) in shown[2]


def test_only_the_first_space_of_a_text_is_taken_away(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("  two", add_special_tokens=True)  # 3 with the one in front
    assert "".join(deltas(sentencepiece, ids)) == "  two"
    assert "".join(deltas(sentencepiece, ids, continuation=True)) == "   two"


def test_an_id_out_of_range_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="outside the vocabulary"):
        IncrementalDetokenizer(tokenizer).push(tokenizer.vocab_size)
