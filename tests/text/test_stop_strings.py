"""Stop strings must cut a stream exactly where they would cut the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import RequestError
from headway.text.stop_strings import StopResult, StopStrings

SMALL = st.text("ab\u00e9🐎", max_size=24)
STOPS = st.lists(st.text("ab\u00e9🐎", min_size=1, max_size=6), max_size=5)


def whole_cut(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition: the first end of any stop string; the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            matched = max(ending, key=len)
            return text[: end if include else end - len(matched)], matched
    return text, None


def streamed(
    pieces: list[str], stops: list[str], include: bool = False
) -> tuple[list[str], str | None]:
    strings = StopStrings(stops, include=include)
    results = [*map(strings.push, pieces), strings.flush()]
    return [result.text for result in results], results[-1].matched


def held_back(text: str, stops: list[str]) -> int:
    """Length of the longest end of ``text`` that begins a stop string."""
    lengths = range(len(text), 0, -1)
    return next((n for n in lengths if any(s.startswith(text[-n:]) for s in stops)), 0)


@given(pieces=st.lists(SMALL, max_size=8), stops=STOPS, include=st.booleans())
def test_a_stream_is_cut_like_the_whole_text(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    texts, matched = streamed(pieces, stops, include)
    assert ("".join(texts), matched) == whole_cut("".join(pieces), stops, include)


@given(pieces=st.lists(SMALL, max_size=8), stops=STOPS)
def test_no_more_is_held_back_than_must_be(pieces: list[str], stops: list[str]) -> None:
    strings, sent, seen = StopStrings(stops), "", ""
    for piece in pieces:
        result = strings.push(piece)
        sent, seen = sent + result.text, seen + piece
        if result.matched is not None:
            return
        assert sent == seen[: len(seen) - held_back(seen, stops)]


def test_a_stop_string_over_several_tokens() -> None:
    """Case of a public report: its beginning was sent before the match was complete."""
    assert streamed(["DEF", "G", "HI", "J"], ["DEFGHIJ"]) == (["", "", "", "", ""], "DEFGHIJ")
    texts, matched = streamed(["DEF", "G", "HI", "K"], ["DEFGHIJ"])
    assert (texts, matched) == (["", "", "", "DEFGHIK", ""], None)


def test_what_was_held_back_leaves_in_order() -> None:
    assert streamed(["x<", "<end", "!", "<en"], ["<end>"])[0] == ["x", "<", "<end!", "", "<en"]


def test_nothing_follows_a_match() -> None:
    strings = StopStrings(["."])
    assert strings.push("one. two") == StopResult("one", ".")
    assert strings.push("three") == StopResult("", ".")
    assert strings.flush() == StopResult("", ".")


def test_the_stop_string_can_stay() -> None:
    assert streamed(["ab", "cd"], ["bc"], include=True) == (["a", "bc", ""], "bc")


def test_the_longest_of_those_that_end_together() -> None:
    assert streamed(["xab"], ["b", "ab"]) == (["x", ""], "ab")


def test_a_short_one_inside_a_long_one_wins() -> None:
    assert streamed(["abcd"], ["abcd", "bc"]) == (["a", ""], "bc")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="empty") as caught:
        StopStrings(["a", ""])
    assert caught.value.param == "stop"


def test_sequences_of_a_call_share_one_automaton() -> None:
    stops = ["ab" * 250, "ba" * 250]
    first, second = StopStrings(stops), StopStrings(list(stops))
    assert first._root is second._root
    first.push("abab")
    assert second.push("ab" * 250) == StopResult("", stops[0])
    assert first.push("ab" * 248) == StopResult("", stops[0])
