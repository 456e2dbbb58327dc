"""The head of the queue lacks blocks: who passes it, how often, and that it loses nothing by it."""

from __future__ import annotations

from typing import Any

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import ServiceClass
from headway.core.limits import Batching
from headway.core.plan import Idle, RequestId


def blocked(**changes: Any) -> Life:
    """runs holds 5 of 10 blocks, and ends with its fourth step; the head needs 6."""
    life = Life(**{"num_blocks": 10, "max_num_batched_tokens": 32, **changes})
    life.submit("runs", 17, max_tokens=4)
    life.step()
    life.submit("head", 24, max_tokens=2)
    return life


def start_of_head(life: Life, *others: tuple[int, int]) -> int:
    """Return the step in which the head starts, if others are submitted behind it."""
    for number, (num_prompt, max_tokens) in enumerate(others):
        life.submit(f"p{number}", num_prompt, max_tokens=max_tokens)
    for number in range(100):
        life.step()
        if "head" in life.started():
            return number
    raise AssertionError("it never started")


def test_who_fits_passes_the_head() -> None:
    life = blocked()
    life.submit("p", 4, max_tokens=1)
    assert life.step() == "runs[17:18] p[0:4]"
    life.run_dry()
    assert life.started() == ["runs", "p", "head"]
    (head,) = [event for event in life.seen(ev.Started) if event.request_id == "head"]
    assert head.num_passed == 1


def test_zero_passes_means_that_it_is_never_passed() -> None:
    life = blocked(max_passes=0)
    life.submit("p", 4, max_tokens=1)
    assert life.step() == "runs[17:18]"
    life.run_dry()
    assert life.started() == ["runs", "head", "p"]


def test_it_is_passed_no_more_often_than_allowed() -> None:
    life = blocked(max_passes=2)
    for number in range(4):
        life.submit(f"p{number}", 1, max_tokens=1)
    assert life.steps(2) == ["runs[17:18] p0[0:1] p1[0:1]", "runs[18:19]"]
    life.run_dry()
    assert life.started() == ["runs", "p0", "p1", "head", "p2", "p3"]


def test_each_of_two_that_lack_blocks_counts_who_passes_it() -> None:
    life = blocked(max_passes=1)
    life.submit("second", 24, max_tokens=1)
    life.submit("p", 1, max_tokens=1)
    life.run_dry()
    passed = {event.request_id: event.num_passed for event in life.seen(ev.Started)}
    assert passed == {"runs": 0, "p": 0, "head": 1, "second": 1}


def test_borrowed_blocks_are_given_back_as_soon_as_the_head_can_start_with_them() -> None:
    life = blocked()
    life.submit("p", 15, max_tokens=20)  # takes 4 of the 5 free blocks, and the last one later
    assert life.steps(3) == [
        "runs[17:18] p[0:15]",
        "runs[18:19] p[15:16]",
        "runs[19:20] p[16:17]",
    ]
    assert life.finished() == ["runs"]
    plan = life.plan()
    assert life.read(plan) == "head[0:24]"
    (given_back,) = life.seen(ev.Preempted)
    assert given_back.request_id == "p"
    assert given_back.cause is ev.PreemptionCause.HEAD
    life.answer(plan)
    life.run_dry()
    assert len(life.finished()) == 3


def test_who_does_not_stand_in_its_way_keeps_its_blocks() -> None:
    """10 blocks: 6 for the head, and 2 for one that passed it."""
    life = blocked()
    life.submit("p", 4, max_tokens=20)
    life.steps(3)
    assert life.step() == "p[6:7] head[0:24]"
    assert life.preempted() == []


def test_the_last_who_passed_gives_back_first() -> None:
    """The head needs 6; 5 + 2 + 2 + 1: with the last two gone it fits beside p0."""
    life = blocked()
    life.submit("p0", 8, max_tokens=20)
    life.step()
    life.submit("p1", 4, max_tokens=20)
    life.steps(2)
    life.step()
    assert life.preempted() == ["p1"]
    assert life.running() == {"head", "p0"}


@pytest.mark.parametrize(
    "others",
    [
        [(4, 1)],
        [(4, 30)],
        [(12, 20)],
        [(1, 30)] * 8,
        [(19, 12), (4, 4), (30, 2)],
        [(20, 1), (20, 20)],
    ],
)
@pytest.mark.parametrize("budget", [4, 8, 32])
@pytest.mark.parametrize("sharing", [False, True])
def test_the_head_starts_in_the_same_step_as_if_nobody_had_passed(
    others: list[tuple[int, int]], budget: int, sharing: bool
) -> None:
    changes = {"max_num_batched_tokens": budget, "enable_prefix_sharing": sharing}
    alone = start_of_head(blocked(max_passes=0, **changes))
    assert start_of_head(blocked(**changes), *others) == alone


def test_a_borrowers_prefill_does_not_take_the_step_from_the_head() -> None:
    life = Life(num_blocks=24, max_num_batched_tokens=8)
    life.submit("runs", 32, max_tokens=2)
    life.steps(4)
    life.submit("head", 62, max_tokens=1)
    life.submit("p", 56, max_tokens=4)
    assert life.steps(2) == ["runs[32:33] p[0:7]", "head[0:8]"]


def test_a_borrower_gives_blocks_to_everybody_else_that_runs() -> None:
    """runs needs a sixth block in its fifth step, and p, which passed the head, has it.

    The sequence that is between them in seniority, the head, does not run.
    """
    life = Life(num_blocks=8, max_num_batched_tokens=32)
    life.submit("runs", 20, max_tokens=8)
    life.step()
    life.submit("head", 16, max_tokens=1)
    life.submit("p", 8, max_tokens=20)
    life.run_dry()
    first = life.seen(ev.Preempted)[0]
    assert (first.request_id, first.cause) == ("p", ev.PreemptionCause.BLOCKS)


def test_a_borrower_is_no_borrower_once_the_head_runs() -> None:
    """Then it competes like anybody else, and is preempted only as a junior."""
    life = blocked()
    life.submit("p", 4, max_tokens=20)
    life.steps(4)
    assert life.running() == {"head", "p"}
    assert not any(s.is_borrower for s in life.scheduler.work.running.values())


def test_a_cancelled_head_frees_who_passed_it() -> None:
    life = blocked()
    life.submit("p", 12, max_tokens=20)
    life.step()
    life.cancel("head")
    life.run_dry()
    assert life.preempted() == []
    assert life.finished() == ["runs", "p"]


def test_who_can_give_nothing_back_does_not_pass() -> None:
    """Without preemption a passer could delay the head, so nobody passes."""
    life = blocked(max_preemptions=0)
    life.submit("p", 4, max_tokens=1)
    life.run_dry()
    assert life.started() == ["runs", "head", "p"]


def test_a_preempted_head_is_passed_on_the_same_terms() -> None:
    life = Life(num_blocks=6, max_passes=1, max_num_batched_tokens=8)
    life.submit("old", 4, max_tokens=17)
    life.submit("new", 8, max_tokens=8)
    while "new" not in life.preempted():
        life.step()
    life.submit("p0", 1, max_tokens=2)
    life.submit("p1", 1, max_tokens=2)
    life.run_dry()
    order = [e.request_id for e in life.events if isinstance(e, ev.Started | ev.Resumed)]
    assert order == ["old", "new", "p0", "new", "p1"]


@pytest.mark.parametrize("mode", list(Batching))
def test_an_endless_stream_of_small_requests_cannot_starve_the_head(mode: Batching) -> None:
    """B14's cousin: whoever could be passed for ever would wait for ever."""
    life = Life(num_blocks=10, max_passes=3, batching=mode)
    life.submit("first", 4, max_tokens=4)
    life.step()
    life.submit("head", 36, max_tokens=2)
    for number in range(60):
        life.submit(f"s{number}", 4, max_tokens=4)
        plan = life.schedule()
        assert not isinstance(plan, Idle)
        life.answer(plan)
        if "head" in life.started():
            break
    (head,) = [e for e in life.seen(ev.Started) if e.request_id == RequestId("head")]
    assert head.num_passed <= 3


def test_nobody_gives_back_in_vain_where_its_slot_is_due_to_its_class() -> None:
    """big could have b2's blocks, but no slot: a0, a1 and c0 keep theirs, and the last is b's."""
    classes = (
        ServiceClass(name="a"),
        ServiceClass(name="b", min_running_share=0.25),
        ServiceClass(name="c", min_running_share=0.25),
    )
    life = Life(num_blocks=20, max_num_batched_tokens=128, classes=classes)
    life.submit("a0", 17, max_tokens=30, class_name="a")
    life.submit("a1", 17, max_tokens=30, class_name="a")
    life.submit("b1", 9, max_tokens=3, class_name="b")
    life.step()
    life.submit("big", 33, class_name="a")
    life.submit("b2", 21, max_tokens=20, class_name="b")
    life.steps(2)
    life.submit("c0", 1, max_tokens=20, class_name="c")
    assert life.step() == "a0[19:20] a1[19:20] b2[22:23] c0[0:1]"
    assert life.preempted() == []
