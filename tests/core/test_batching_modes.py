"""Static and dynamic batching: who is in a step, and what its padding costs."""

from __future__ import annotations

from typing import Any

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import ServiceClass
from headway.core.limits import Batching
from headway.core.plan import Padding, StepPlan

STATIC, DYNAMIC = Batching.STATIC, Batching.DYNAMIC


def padded(life: Life, count: int) -> list[tuple[str, Padding]]:
    """Make steps; what each computed and its padding (sequences, rows, length)."""
    done = []
    for _ in range(count):
        plan = life.plan()
        assert plan.padding is not None
        life.answer(plan)
        done.append((life.read(plan), plan.padding))
    return done


# -------------------------------------------------------------------- static


def test_a_static_batch_forms_at_once_when_it_is_full() -> None:
    life = Life(batching=STATIC, max_num_seqs=2, max_waiting_time_s=9.0)
    life.submit("a", 2)
    assert life.idle().until == 9.0
    life.submit("b", 2)
    assert life.step() == "a[0:2] b[0:2]"


def test_a_static_batch_forms_with_who_is_there_when_the_wait_is_over() -> None:
    life = Life(batching=STATIC, max_waiting_time_s=9.0)
    life.submit("a", 2)
    life.now = 5.0
    life.submit("b", 2)
    assert life.idle().until == 9.0, "the first one's wait counts"
    life.now = 9.0
    assert life.step() == "a[0:2] b[0:2]"


def test_without_a_wait_a_static_batch_takes_who_is_there() -> None:
    life = Life(batching=STATIC)
    life.submit("a", 2)
    assert life.step() == "a[0:2]"


def test_nobody_joins_a_static_batch() -> None:
    life = Life(batching=STATIC)
    life.submit("a", 2, max_tokens=4)
    life.step()
    life.submit("b", 2, max_tokens=2)
    assert life.run_dry() == ["a[2:3]", "a[3:4]", "a[4:5]", "b[0:2]", "b[2:3]"]


def test_ended_members_of_a_static_batch_are_computed_to_its_end() -> None:
    """Each step computes three rows: a short member keeps its slot until the longest ends."""
    life = Life(batching=STATIC)
    life.submit("short", 2, max_tokens=1)
    life.submit("medium", 3, max_tokens=2)
    life.submit("long", 4, max_tokens=4)
    assert padded(life, 4) == [
        ("short[0:2] medium[0:3] long[0:4]", Padding(3, 4, 4)),
        ("medium[3:4] long[4:5]", Padding(3, 1, 5)),
        ("long[5:6]", Padding(3, 1, 6)),
        ("long[6:7]", Padding(3, 1, 7)),
    ]
    assert life.finished() == ["short", "medium", "long"], "each client has its answer at once"


def test_a_cancelled_member_of_a_static_batch_is_computed_to_its_end() -> None:
    life = Life(batching=STATIC)
    life.submit("a", 2, max_tokens=3)
    life.submit("gone", 2, max_tokens=3)
    life.step()
    life.cancel("gone")
    assert padded(life, 1) == [("a[2:3]", Padding(2, 1, 3))]


def test_an_ended_member_gives_its_blocks_back_but_not_its_slot() -> None:
    life = Life(batching=STATIC, max_num_seqs=2)
    life.submit("short", 4, max_tokens=1)
    life.submit("long", 4, max_tokens=4)
    life.step()
    life.submit("next", 4)
    assert life.num_free_blocks == 15
    assert life.steps(4) == ["long[4:5]", "long[5:6]", "long[6:7]", "next[0:4]"]


def test_a_new_static_batch_pays_for_none_of_the_last() -> None:
    life = Life(batching=STATIC)
    life.submit("a", 2, max_tokens=1)
    life.submit("b", 2, max_tokens=2)
    life.steps(2)
    life.submit("c", 3, max_tokens=1)
    assert padded(life, 1) == [("c[0:3]", Padding(1, 3, 3))]


def test_a_static_batch_in_chunks_lets_its_decodes_wait() -> None:
    """16 positions a step for two sequences are 8 each; the short prompt waits for the long."""
    life = Life(batching=STATIC)
    life.submit("short", 4, max_tokens=3)
    life.submit("long", 20, max_tokens=3)
    assert padded(life, 4) == [
        ("short[0:4] long[0:8]", Padding(2, 8, 8)),
        ("long[8:16]", Padding(2, 8, 16)),
        ("long[16:20]", Padding(2, 4, 20)),
        ("short[4:5] long[20:21]", Padding(2, 1, 21)),
    ]


def test_a_static_batch_without_chunks_has_as_many_as_the_padded_prompts_leave_room_for() -> None:
    """Three prompts padded to 30 would be 90 positions, and 70 is the budget."""
    life = Life(batching=STATIC, enable_chunked_prefill=False, max_num_batched_tokens=70)
    life.submit("a", 30, max_tokens=2)
    life.submit("b", 4, max_tokens=2)
    life.submit("c", 4, max_tokens=2)
    assert padded(life, 3) == [
        ("a[0:30] b[0:4]", Padding(2, 30, 30)),
        ("a[30:31] b[4:5]", Padding(2, 1, 31)),
        ("c[0:4]", Padding(1, 4, 4)),
    ]


def test_members_of_a_static_batch_have_all_their_blocks_from_the_start() -> None:
    """Nobody can be preempted, so what does not fit to its end waits for the next batch."""
    life = Life(batching=STATIC, num_blocks=8)
    life.submit("a", 4, max_tokens=13)  # 4 blocks in the end
    life.submit("b", 4, max_tokens=14)  # 5 blocks in the end
    assert life.step() == "a[0:4]"
    life.run_dry()
    assert life.preempted() == []
    assert life.finished() == ["a", "b"]


def test_nobody_passes_a_head_that_lacks_blocks_into_a_static_batch() -> None:
    life = Life(batching=STATIC, num_blocks=10)
    life.submit("a", 12, max_tokens=4)
    life.submit("head", 32, max_tokens=4)
    life.submit("c", 4, max_tokens=13)
    life.run_dry()
    assert life.started() == ["a", "head", "c"]


def test_a_full_class_does_not_make_a_static_batch_full() -> None:
    vip = ServiceClass(name="vip", max_running_share=0.25)
    life = Life(batching=STATIC, max_waiting_time_s=1.0, classes=(vip, ServiceClass()))
    life.submit("a", 2, class_name="vip")
    assert life.idle().until == 1.0


# -------------------------------------------------------------------- dynamic


def test_a_dynamic_batch_is_joined_and_left_at_every_step() -> None:
    life = Life(batching=DYNAMIC, max_num_seqs=2)
    life.submit("a", 2, max_tokens=2)
    life.step()
    life.submit("b", 3, max_tokens=3)
    life.submit("c", 3, max_tokens=1)
    assert padded(life, 4) == [
        ("b[0:3]", Padding(1, 3, 3)),  # a's decode waits for it
        ("a[2:3] b[3:4]", Padding(2, 1, 4)),
        ("c[0:3]", Padding(1, 3, 3)),  # in a's slot
        ("b[4:5]", Padding(1, 1, 5)),
    ]


def test_a_dynamic_step_is_padded_to_its_longest_member() -> None:
    life = Life(batching=DYNAMIC)
    life.submit("short", 2, max_tokens=3)
    life.submit("long", 7, max_tokens=3)
    assert padded(life, 2) == [
        ("short[0:2] long[0:7]", Padding(2, 7, 7)),
        ("short[2:3] long[7:8]", Padding(2, 1, 8)),
    ]


def test_a_dynamic_prefill_in_chunks_stalls_decodes_for_all_of_them() -> None:
    life = Life(batching=DYNAMIC)
    life.submit("a", 2, max_tokens=3)
    life.step()
    life.submit("long", 40, max_tokens=2)
    assert padded(life, 4) == [
        ("long[0:16]", Padding(1, 16, 16)),
        ("long[16:32]", Padding(1, 16, 32)),
        ("long[32:40]", Padding(1, 8, 40)),
        ("a[2:3] long[40:41]", Padding(2, 1, 41)),
    ]


def test_a_dynamic_prefill_without_chunks_is_one_step() -> None:
    life = Life(
        batching=DYNAMIC, enable_chunked_prefill=False, max_num_batched_tokens=64, num_blocks=32
    )
    life.submit("a", 2, max_tokens=3)
    life.step()
    life.submit("long", 40, max_tokens=2)
    life.submit("b", 30, max_tokens=2)  # 2 * 40 positions are too many
    assert padded(life, 3) == [
        ("long[0:40]", Padding(1, 40, 40)),
        ("b[0:30]", Padding(1, 30, 30)),
        ("a[2:3] long[40:41] b[30:31]", Padding(3, 1, 41)),
    ]


def test_the_budget_of_a_dynamic_step_counts_its_padding() -> None:
    """Three prefills share 16 positions: five rows each, though the short ones need fewer."""
    life = Life(batching=DYNAMIC)
    for name, length in ("a", 2), ("b", 3), ("long", 12):
        life.submit(name, length, max_tokens=1)
    assert padded(life, 2) == [
        ("a[0:2] b[0:3] long[0:5]", Padding(3, 5, 5)),
        ("long[5:12]", Padding(1, 7, 12)),
    ]


def test_the_chunk_limit_holds_in_padded_steps() -> None:
    life = Life(batching=DYNAMIC, max_prefill_chunk_tokens=4)
    life.submit("a", 10, max_tokens=1)
    assert [padding.num_rows for _, padding in padded(life, 3)] == [4, 4, 2]


def test_a_prompt_of_one_token_stalls_no_decode() -> None:
    life = Life(batching=DYNAMIC)
    life.submit("a", 4, max_tokens=6)
    life.step()
    life.submit("b", 1, max_tokens=3)
    assert padded(life, 1) == [("a[4:5] b[0:1]", Padding(2, 1, 5))]


def test_a_dynamic_batch_preempts_and_finishes() -> None:
    life = Life(batching=DYNAMIC, num_blocks=4)
    life.submit("old", 4, max_tokens=10)
    life.submit("new", 4, max_tokens=10)
    life.run_dry()
    assert life.preempted() == ["new"]
    assert life.finished() == ["old", "new"]


@pytest.mark.parametrize("mode", list(Batching))
def test_all_modes_give_each_client_the_same_events(mode: Batching) -> None:
    life = Life(batching=mode, max_num_seqs=2)
    for name in "abc":
        life.submit(name, 6, max_tokens=3)
    life.run_dry()
    kinds: dict[str, list[Any]] = {name: [] for name in "abc"}
    for event in life.events:
        kinds[event.request_id].append(type(event))
    ended = [ev.Started, *[ev.TokenReady] * 3, ev.SequenceFinished, ev.Finished]
    assert kinds == dict.fromkeys("abc", ended)


def test_continuous_steps_have_no_padding() -> None:
    life = Life()
    life.submit("a", 2)
    plan = life.plan()
    assert isinstance(plan, StepPlan)
    assert plan.padding is None
    life.answer(plan)


def test_decodes_go_on_when_the_only_prefill_gives_way() -> None:
    """The decode that was due took a block that the prompt was to have."""
    life = Life(batching=Batching.DYNAMIC, num_blocks=4, block_size=2, max_prefill_chunk_tokens=1)
    life.submit("a", 2, max_tokens=6)
    life.submit("b", 6, max_tokens=1)
    life.run_dry()
    assert life.preempted() == ["b"]
    assert life.finished() == ["a", "b"]


def test_prefills_let_decodes_wait_for_four_steps_and_no_longer() -> None:
    life = Life(batching=Batching.DYNAMIC, num_blocks=64, max_prefill_chunk_tokens=2)
    life.submit("a", 2, max_tokens=3)
    life.step()
    life.submit("b", 14, max_tokens=1)
    assert life.steps(8) == [
        "b[0:2]",
        "b[2:4]",
        "b[4:6]",
        "b[6:8]",
        "a[2:3]",
        "b[8:10]",
        "b[10:12]",
        "b[12:14]",
    ]
