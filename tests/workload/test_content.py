"""Made-up prompts: the same wherever hashes are the same, and nowhere else."""

from __future__ import annotations

from itertools import takewhile

import pytest

from headway.core.request import PromptHashes
from headway.workload import Arrival, Content, Prompt
from headway.workload.content import ID_RANGE, WORDS


def an_arrival(num_tokens: int, *ids: int, stretch: int = 10) -> Arrival:
    hashes = PromptHashes(stretch, ids) if ids else None
    return Arrival(at_s=0.0, prompt_tokens=num_tokens, output_tokens=1, hashes=hashes)


def common(one: list, other: list) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


@pytest.mark.parametrize("make", ["text", "token_ids"])
def test_equal_hashes_are_equal_beginnings(make: str) -> None:
    content = Content(1)

    def said(name: str, arrival: Arrival) -> list:
        made = getattr(content, make)(name, arrival)
        return made.split(" ") if isinstance(made, str) else made

    one, other = said("1", an_arrival(35, 1, 2, 3, 4)), said("2", an_arrival(35, 1, 2, 9, 10))
    assert len(one) == len(other) == 35
    assert 20 <= common(one, other) < 25
    assert common(one, said("3", an_arrival(35, 5, 2, 3, 4))) < 5
    short = said("4", an_arrival(14, 1, 2))
    assert short == one[:14]  # the beginning of a stretch that was cut
    shared = said("5", an_arrival(35, 1))
    assert 10 <= common(one, shared) < 15  # what has no name is the request's own
    assert said("5", an_arrival(35, 1)) == shared
    assert common(shared, said("6", an_arrival(35, 1))) < 15


def test_the_seed_and_the_name_decide() -> None:
    arrival = an_arrival(50)
    assert Content(1).token_ids("a", arrival) == Content(1).token_ids("a", arrival)
    assert Content(1).token_ids("a", arrival) != Content(2).token_ids("a", arrival)
    assert Content(1).token_ids("a", arrival) != Content(1).token_ids("b", arrival)
    ids = Content(1, (5, 9)).token_ids("a", arrival)
    assert set(ids) == {5, 6, 7, 8}
    assert all(each in range(*ID_RANGE) for each in Content(1).token_ids("a", arrival))


def test_words_are_common_and_told_once() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() for word in WORDS)


def test_a_real_prompt_is_itself() -> None:
    arrival = Arrival(at_s=0.0, prompt_tokens=1, output_tokens=1, prompt=Prompt(text="so it is"))
    assert Content(1).text("a", arrival) == "so it is"
