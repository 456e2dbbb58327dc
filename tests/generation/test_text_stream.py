"""Events in, deltas out: nothing lost, nothing twice, nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_text import (
    DEF,
    END,
    EOS,
    HI,
    REQUEST,
    ScriptedSource,
    ended,
    make_tokenizer,
    token,
    tokens,
)

from headway.core.events import (
    Admitted,
    Cancelled,
    Event,
    Expired,
    ExpireReason,
    Failed,
    Finished,
    FinishReason,
    PromptScored,
    SequenceFinished,
)
from headway.core.plan import PromptLogprobs, TokenLogprobs
from headway.generation.collect import MergedStreams, collect
from headway.generation.errors import GenerationError
from headway.generation.params import GenerationParams
from headway.generation.scores import LOWEST_LOGPROB, Scorer, text_offsets
from headway.generation.sequence_text import SequenceText, TextDelta
from headway.generation.stream import TextStream

TOKENIZER = make_tokenizer()
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def open_stream(
    batches: Sequence[Sequence[Event]], first_index: int = 0, **values: Any
) -> tuple[TextStream, ScriptedSource]:
    params = GenerationParams(**values)
    source = ScriptedSource(batches)
    stop_ids = frozenset({EOS, *params.stop_token_ids})
    sequences = [
        SequenceText(first_index + i, TOKENIZER, params, stop_ids) for i in range(params.n)
    ]
    return TextStream(source, sequences, (1, 2, 3), Scorer(TOKENIZER)), source


async def read(batches: Sequence[Sequence[Event]], **values: Any) -> list[TextDelta]:
    stream, _ = open_stream(batches, **values)
    return [delta async for delta in stream]


async def read_into(deltas: list[TextDelta], stream: TextStream) -> None:
    async for delta in stream:
        deltas.append(delta)  # also what came before an error


def text_of(deltas: Sequence[TextDelta], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas if delta.index == index)


def finish(reason: FinishReason, index: int = 0, stop_token: int | None = None) -> SequenceFinished:
    return SequenceFinished(REQUEST, index, reason, stop_token)


async def test_text_comes_as_it_is_made_and_ends_once() -> None:
    batches: list[list[Event]] = [
        [Admitted(REQUEST, ())],
        tokens("Hel"),
        tokens("lo"),
        ended(finish(LENGTH)),
    ]
    deltas = await read(batches)
    assert [delta.text for delta in deltas] == ["Hel", "lo", ""]
    assert [delta.finish_reason for delta in deltas] == [None, None, LENGTH]
    assert [len(delta.token_ids) for delta in deltas] == [3, 2, 0]


async def test_the_end_token_counts_but_leaves_no_text() -> None:
    stream, _ = open_stream([[*tokens("a"), token(EOS), *ended(finish(STOP, 0, EOS))]])
    (delta,) = [delta async for delta in stream]
    assert (delta.text, delta.token_ids) == ("a", (ord("a"), EOS))
    assert (delta.finish_reason, delta.stop_reason) == (STOP, None)
    assert stream.usage.num_completion_tokens == 2
    assert stream.usage.num_prompt_tokens == 3


@pytest.mark.parametrize(("includes", "text"), [(False, "a"), (True, "ab")])
async def test_b31_a_requested_stop_token_is_named_and_shown_only_if_asked(
    includes: bool, text: str
) -> None:
    end = ended(finish(STOP, 0, ord("b")))
    values = {"stop_token_ids": (ord("b"),), "include_stop_str_in_output": includes}
    deltas = await read([[*tokens("ab"), *end]], **values)
    assert text_of(deltas) == text
    assert deltas[-1].stop_reason == ord("b")


async def test_a_stop_token_with_id_zero_is_named_too() -> None:
    stream, _ = open_stream([[token(0), *ended(finish(STOP, 0, 0))]], stop_token_ids=(0,))
    (choice,) = await collect(stream)
    assert choice.stop_reason == 0


async def test_b29_a_stop_string_across_tokens_never_leaves() -> None:
    ids = [ord("x"), DEF, ord("G"), HI, ord("J")]
    batches = [[token(each)] for each in ids]
    stream, source = open_stream([*batches, ended(finish(STOP))], stop=("DEFGHIJ",))
    deltas = [delta async for delta in stream]
    assert [delta.text for delta in deltas] == ["x", ""]
    assert deltas[-1].stop_reason == "DEFGHIJ"
    assert sum((delta.token_ids for delta in deltas), ()) == tuple(ids)
    assert source.finished == [0]


async def test_b29_a_failed_match_is_released_in_order() -> None:
    ids = [DEF, ord("G"), HI, ord("K")]
    batches = [[token(each)] for each in ids]
    deltas = await read([*batches, ended(finish(LENGTH))], stop=("DEFGHIJ",))
    assert [delta.text for delta in deltas] == ["DEFGHIK", ""]
    assert deltas[0].token_ids == tuple(ids)


async def test_the_end_releases_what_a_stop_string_held() -> None:
    deltas = await read([tokens("abEN"), ended(finish(LENGTH))], stop=("END",))
    assert text_of(deltas) == "abEN"
    assert deltas[-1].finish_reason is LENGTH


async def test_a_stop_string_can_be_shown() -> None:
    values = {"stop": ("lo",), "include_stop_str_in_output": True}
    assert text_of(await read([tokens("Hello"), ended(finish(LENGTH))], **values)) == "Hello"


async def test_what_comes_behind_a_stop_string_is_dropped() -> None:
    stream, source = open_stream(
        [tokens("abcd"), tokens("efgh"), ended(finish(LENGTH))], stop=("c",)
    )
    deltas = [delta async for delta in stream]
    assert text_of(deltas) == "ab"
    assert [delta.finish_reason for delta in deltas] == [STOP]
    assert stream.usage.num_completion_tokens == 3
    assert source.finished == [0]


async def test_stop_strings_wait_for_min_tokens() -> None:
    deltas = await read([tokens("aXbXc"), ended(finish(LENGTH))], stop=("X",), min_tokens=3)
    assert text_of(deltas) == "aXb"


async def test_b26_each_index_finishes_exactly_once() -> None:
    batches = [
        [*tokens("a", 0), *tokens("b", 1), *tokens("c", 2)],
        [*tokens("a", 0), finish(LENGTH, 0), *tokens("b", 1), *tokens("c", 2)],
        [*tokens("b", 1), finish(STOP, 1), *tokens("c", 2)],
        [*tokens("c", 2), *ended(finish(LENGTH, 2))],
    ]
    stream, _ = open_stream(batches, n=3, first_index=6)
    deltas = [delta async for delta in stream]
    for index, text, reason in ((6, "aa", LENGTH), (7, "bbb", STOP), (8, "cccc", LENGTH)):
        own = [delta for delta in deltas if delta.index == index]
        assert text_of(own, index) == text
        assert [delta.finish_reason for delta in own if delta.finish_reason] == [reason]
        assert own[-1].finish_reason is reason
    assert stream.usage.num_completion_tokens == 9


CHARACTERS = "ď🦜👩‍👩‍👧"


async def test_b32_characters_leave_whole() -> None:
    batches = [[token(byte)] for byte in CHARACTERS.encode()]
    deltas = await read([*batches, ended(finish(LENGTH))])
    assert text_of(deltas) == CHARACTERS
    assert all("\ufffd" not in delta.text for delta in deltas)
    assert sum(len(delta.token_ids) for delta in deltas) == len(CHARACTERS.encode())


async def test_b32_only_a_cut_tail_is_replaced() -> None:
    stream, _ = open_stream([tokens("a🦜".encode()[:3]), ended(finish(LENGTH))])
    (choice,) = await collect(stream)
    assert choice.text == "a\ufffd"
    assert stream.usage.num_completion_tokens == 3


async def test_b33_one_entry_per_token_however_they_are_batched() -> None:
    events = [token(each, 0, -float(i)) for i, each in enumerate(b"abcdef")]
    whole = await read([events, ended(finish(LENGTH))], logprobs=1)
    single = await read([*([event] for event in events), ended(finish(LENGTH))], logprobs=1)
    for deltas in (whole, single):
        scores = [entry for delta in deltas for entry in delta.scores]
        assert [entry.token.text for entry in scores] == list("abcdef")
        assert [entry.token.logprob for entry in scores] == [0.0, -1.0, -2.0, -3.0, -4.0, -5.0]
        assert [entry.top[0].token_id for entry in scores] == list(b"abcdef")


@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan"), -1e30])
async def test_b33_scores_are_finite(value: float) -> None:
    (first, *_) = await read([[token(97, 0, value)], ended(finish(LENGTH))], logprobs=1)
    assert first.scores[0].token.logprob == LOWEST_LOGPROB
    assert first.scores[0].top[0].logprob == LOWEST_LOGPROB


async def test_offsets_count_held_back_text_too() -> None:
    deltas = await read([*([e] for e in tokens("aďX")), ended(finish(LENGTH))], stop=("XY",))
    offsets = [offset for delta in deltas for offset in delta.offsets]
    assert offsets == [0, 1, 1, 2]


async def test_prompt_scores_are_known_before_the_first_delta() -> None:
    entries = (TokenLogprobs(2, -1.0), TokenLogprobs(3, -2.0))
    parts = [PromptScored(REQUEST, 0, PromptLogprobs(1 + i, (e,))) for i, e in enumerate(entries)]
    stream, _ = open_stream(
        [[parts[0]], [parts[1], *tokens("a")], ended(finish(LENGTH))], prompt_logprobs=0
    )
    await stream.next_batch()
    scores = stream.prompt_scores
    assert scores[0] is None
    assert [entry.token.token_id for entry in scores if entry] == [2, 3]


async def test_scoring_alone_ends_with_length() -> None:
    deltas = await read([ended(finish(LENGTH))], max_tokens=0)
    assert [(delta.text, delta.finish_reason) for delta in deltas] == [("", LENGTH)]


FAILURES = [
    (Failed(REQUEST, "boom"), "engine_error", 500, False),
    (Expired(REQUEST, ExpireReason.QUEUE_TIMEOUT, 2.0), "queue_timeout", 503, True),
    (Expired(REQUEST, ExpireReason.REQUEST_TIMEOUT, 2.0), "request_timeout", 408, False),
    (Cancelled(REQUEST, "client_too_slow"), "client_too_slow", 503, False),
    (Cancelled(REQUEST, "server_shutdown"), "cancelled", 503, True),
]


@pytest.mark.parametrize(("event", "code", "status", "retry"), FAILURES)
async def test_b56_a_bad_end_is_an_error_and_never_a_finish(
    event: Event, code: str, status: int, retry: bool
) -> None:
    stream, source = open_stream([tokens("ab"), [*tokens("c"), event]])
    deltas: list[TextDelta] = []
    with pytest.raises(GenerationError) as caught:
        await read_into(deltas, stream)
    assert (caught.value.code, caught.value.status, caught.value.retry) == (code, status, retry)
    assert text_of(deltas) == "abc"
    assert all(delta.finish_reason is None for delta in deltas)
    stream.cancel("late")
    assert source.cancelled == []


async def test_a_failure_behind_the_last_stop_string_harms_nobody() -> None:
    deltas = await read([tokens("abc"), [Failed(REQUEST, "late")]], stop=("c",))
    assert deltas[-1].finish_reason is STOP


@pytest.mark.parametrize("ends", [[], [finish(STOP, 1)]])
async def test_an_end_that_the_engine_lost_is_no_finish(ends: list[Event]) -> None:
    stream, _ = open_stream([[*tokens("a"), *tokens("b", 1)], [*ends, Finished(REQUEST)]], n=2)
    deltas: list[TextDelta] = []
    with pytest.raises(GenerationError, match=f"lost the end of {2 - len(ends)} ") as caught:
        await read_into(deltas, stream)
    assert (caught.value.code, caught.value.status) == ("engine_error", 500)
    assert (text_of(deltas), text_of(deltas, 1)) == ("a", "b")
    assert not any(delta.finish_reason for delta in deltas if delta.index == 0)


async def test_leaving_early_cancels() -> None:
    stream, source = open_stream([tokens("abc"), ended(finish(LENGTH))])
    async with stream:
        await stream.next_batch()
    assert source.cancelled == ["abandoned"]


async def test_leaving_at_the_end_does_not_cancel() -> None:
    stream, source = open_stream([tokens("abc"), ended(finish(LENGTH))])
    async with stream:
        await collect(stream)
    assert source.cancelled == []


async def test_merged_streams_give_every_index() -> None:
    streams = [
        open_stream([tokens("ab"), tokens("c"), ended(finish(LENGTH))], first_index=i)[0]
        for i in range(5)
    ]
    async with MergedStreams(streams) as merged:
        choices = await collect(merged)
    assert [(choice.index, choice.text) for choice in choices] == [(i, "abc") for i in range(5)]


async def test_merged_streams_end_at_the_first_failure() -> None:
    good, _ = open_stream([tokens("a"), ended(finish(LENGTH))])
    bad, _ = open_stream([[Failed(REQUEST, "boom")]], first_index=1)
    with pytest.raises(GenerationError):
        async with MergedStreams([good, bad]) as merged:
            await collect(merged)


async def test_a_bug_in_one_merged_stream_is_not_waited_for() -> None:
    good, _ = open_stream([tokens("a"), ended(finish(LENGTH))])
    broken, _ = open_stream([tokens("a"), ended(finish(LENGTH))], first_index=1)
    broken.next_batch = good.prompt_scores.copy  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        async with MergedStreams([good, broken]) as merged:
            await collect(merged)


@pytest.mark.parametrize(
    ("skips", "expected"),
    [(True, [0, 1, 1, 2, 2, 2, 2, 2, 3]), (False, [0, 1, 1, 2, 7, 7, 7, 7, 8])],
)
def test_offsets_of_tokens_that_are_no_characters(skips: bool, expected: list[int]) -> None:
    ids = [*"aď".encode(), END, *"🦜z".encode()]
    assert text_offsets(TOKENIZER, ids, skip_special_tokens=skips) == expected


@given(
    ids=st.lists(st.sampled_from([*b"ab", 0xF0, 0x9F, 0xA6, 0x9C, 0xFF, DEF, END])),
    skips=st.booleans(),
)
def test_offsets_lie_in_the_text_in_order(ids: list[int], skips: bool) -> None:
    offsets = text_offsets(TOKENIZER, ids, skip_special_tokens=skips)
    assert len(offsets) == len(ids)
    assert offsets == sorted(offsets)
    assert all(
        0 <= offset <= len(TOKENIZER.decode(ids, skip_special_tokens=skips)) for offset in offsets
    )


token_ids = st.lists(st.sampled_from([*b"abX", 0xF0, 0x9F, 0xA6, 0x9C, DEF, END]), max_size=24)


@given(
    ids=token_ids,
    cuts=st.sets(st.integers(0, 24)),
    stop=st.lists(st.sampled_from(["ab", "X", "bX", "DEFa", "🦜"]), max_size=2),
    min_tokens=st.integers(0, 6),
)
async def test_batching_changes_nothing(
    ids: list[int], cuts: set[int], stop: list[str], min_tokens: int
) -> None:
    events = [token(each, 0, -1.0) for each in ids]
    values: dict[str, Any] = {"stop": tuple(stop), "min_tokens": min_tokens, "logprobs": 1}
    bounds = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    batches = [events[a:b] for a, b in pairwise(bounds)]
    single, _ = open_stream([*([event] for event in events), ended(finish(LENGTH))], **values)
    batched, _ = open_stream([*batches, ended(finish(LENGTH))], **values)
    (one,), (other,) = await collect(single), await collect(batched)
    assert one == other
    assert len(one.scores) == len(one.token_ids) == len(one.offsets)
    assert one.token_ids == ids[: len(one.token_ids)]
    assert single.usage == batched.usage
    if one.finish_reason is LENGTH:
        assert one.text == TOKENIZER.decode(ids)
    else:
        assert one.stop_reason in stop
