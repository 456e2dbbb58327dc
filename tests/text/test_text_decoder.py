"""A sequence's text: tokens in, deltas out, cut at stop strings, with offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.text.text_decoder import TextDecoder, TextDelta
from headway.text.tokenizer import Tokenizer


def run(decoder: TextDecoder, ids: list[int]) -> list[TextDelta]:
    return [*map(decoder.push, ids), decoder.flush()]


@given(
    data=st.data(),
    stops=st.lists(st.sampled_from(["e", "\n", "�", "ab", "🐎"]), max_size=3),
)
def test_text_is_the_decoded_text_up_to_the_stop(
    tokenizer: Tokenizer, data: st.DataObject, stops: list[str]
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    made = run(TextDecoder(tokenizer, stops=stops), ids)
    whole = tokenizer.decode(ids)
    first = min((whole.find(stop) for stop in stops if stop in whole), default=len(whole))
    text = "".join(delta.text for delta in made)
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    if made[-1].stopped is None:
        assert text == whole
    else:
        assert whole[len(text) :].startswith(made[-1].stopped)
        assert len(text) == first


@given(data=st.data())
def test_offsets_are_the_lengths_of_the_text_before(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    offsets = [delta.offset for delta in run(TextDecoder(tokenizer), ids)]
    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    whole = tokenizer.decode(ids)
    for position, offset in enumerate(offsets[:-1]):
        # Of the text before it, only a character that is not complete is missing.
        before = tokenizer.decode(ids[:position])
        assert before[:offset] == whole[:offset]
        assert len(before) - offset <= 1


def test_offsets_do_not_depend_on_stop_strings(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("one two three", add_special_tokens=False)
    plain = run(TextDecoder(byte_level), ids)
    with_stop = run(TextDecoder(byte_level, stops=["threes"]), ids)
    assert [d.offset for d in plain] == [d.offset for d in with_stop]
    assert "".join(d.text for d in with_stop) == "one two three"


def test_nothing_comes_after_a_stop(byte_level: Tokenizer) -> None:
    decoder = TextDecoder(byte_level, stops=["two"])
    ids = byte_level.encode("one two three", add_special_tokens=False)
    made = run(decoder, ids)
    assert "".join(delta.text for delta in made) == "one "
    assert made[-1] == TextDelta("", "two", made[-1].offset)


@pytest.mark.parametrize(("include", "text"), [(True, "one two"), (False, "one ")])
def test_the_stop_string_can_stay(byte_level: Tokenizer, include: bool, text: str) -> None:
    decoder = TextDecoder(byte_level, stops=["two"], include_stop=include)
    made = run(decoder, byte_level.encode("one two three", add_special_tokens=False))
    assert "".join(delta.text for delta in made) == text


def test_every_token_has_its_own_delta(byte_level: Tokenizer) -> None:
    """Case of a public report: tokens that were sent together shared one entry of log-probs."""
    ids = byte_level.encode("a 🐎 gallops", add_special_tokens=False)
    decoder = TextDecoder(byte_level)
    made = [decoder.push(token_id) for token_id in ids]
    assert len(made) == len(ids)
    assert b"".join(map(byte_level.token_bytes, ids)).decode() == "".join(d.text for d in made)
