"""``priority``: lower numbers go first, and take slots and blocks from higher ones."""

from __future__ import annotations

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig


def life_of(threshold: int | None = 1, ageing_s: float = 60.0, **changes: object) -> Life:
    policy = PolicyConfig(name=PolicyName.PRIORITY, priority_threshold=threshold, ageing_s=ageing_s)
    return Life(policy=policy, **{"max_num_seqs": 1, **changes})  # type: ignore[arg-type]


def test_lower_numbers_go_first_and_equal_ones_by_arrival() -> None:
    life = life_of(threshold=None)
    for name, priority in ("a", 1), ("b", 0), ("c", -1), ("d", 0):
        life.submit(name, 2, max_tokens=1, priority=priority)
    life.run_dry()
    assert life.started() == ["c", "b", "d", "a"]


def test_the_class_gives_the_priority_where_the_request_has_none() -> None:
    classes = (ServiceClass(name="low", priority=5), ServiceClass(name="high", priority=-5))
    life = life_of(threshold=None, classes=classes)
    life.submit("a", 2, class_name="low")
    life.submit("b", 2, class_name="high")
    life.submit("c", 2, class_name="low", priority=-9)
    life.run_dry()
    assert life.started() == ["c", "b", "a"]


def test_a_high_request_takes_the_slot_of_a_low_one() -> None:
    """B18."""
    life = life_of()
    life.submit("low", 2, max_tokens=8, priority=1)
    life.step()
    life.submit("high", 2, max_tokens=2, priority=0)
    plan = life.plan()
    assert life.read(plan) == "high[0:2]"
    (event,) = life.seen(ev.Preempted)
    assert (event.request_id, event.cause) == ("low", ev.PreemptionCause.PRIORITY)
    life.answer(plan)
    assert life.steps(2) == ["high[2:3]", "low[0:3]"]


def test_a_high_request_takes_the_blocks_of_low_ones_and_no_more_than_it_needs() -> None:
    """Of 12 blocks 4 are free; it needs 6, so one of two blocks gives way."""
    life = life_of(max_num_seqs=8, num_blocks=12, max_num_batched_tokens=32)
    life.submit("s1", 5, max_tokens=8, priority=1)
    life.submit("s2", 5, max_tokens=8, priority=1)
    life.submit("big", 14, max_tokens=8, priority=1)
    life.step()
    assert life.num_free_blocks == 4
    life.submit("high", 24, max_tokens=1, priority=0)
    life.step()
    assert life.preempted() == ["s2"]
    assert life.started()[-1] == "high"


def test_the_lowest_gives_way_first_though_it_loses_most() -> None:
    life = life_of(max_num_seqs=2, num_blocks=64)
    life.submit("lowest", 12, max_tokens=8, priority=9)
    life.submit("low", 2, max_tokens=8, priority=1)
    life.step()
    life.submit("high", 2, priority=0)
    life.step()
    assert life.preempted() == ["lowest"]


@pytest.mark.parametrize(("threshold", "takes"), [(1, True), (3, True), (4, False)])
def test_the_threshold_is_by_how_much_it_must_be_higher(threshold: int, takes: bool) -> None:
    life = life_of(threshold)
    life.submit("low", 2, max_tokens=8, priority=3)
    life.step()
    life.submit("high", 2, priority=0)
    life.step()
    assert life.preempted() == (["low"] if takes else [])


def test_equals_take_nothing_from_each_other() -> None:
    """B18: nor do they take turns."""
    life = life_of()
    life.submit("a", 2, max_tokens=8, priority=1)
    life.step()
    life.submit("b", 2, priority=1)
    life.run_dry()
    assert life.preempted() == []


def test_without_a_threshold_nothing_is_taken() -> None:
    life = life_of(None)
    life.submit("low", 2, max_tokens=8, priority=9)
    life.step()
    life.submit("high", 2, priority=0)
    life.run_dry()
    assert life.preempted() == []


def test_nobody_is_preempted_beside_one_whose_blocks_are_enough() -> None:
    """high needs 7 of 12 blocks; big has 8, s1 and s2 have 2 each."""
    life = life_of(max_num_seqs=8, num_blocks=12, max_num_batched_tokens=64)
    life.submit("s1", 5, max_tokens=8, priority=1)
    life.submit("s2", 5, max_tokens=8, priority=1)
    life.submit("big", 29, max_tokens=4, priority=1)
    life.step()
    life.submit("high", 26, max_tokens=1, priority=0)
    assert life.step() == "s1[5:6] s2[5:6] high[0:26]"
    assert life.preempted() == ["big"]


def test_nobody_is_preempted_in_vain() -> None:
    """It would need 7 of 8 blocks, and its equal keeps 3."""
    life = life_of(max_num_seqs=4, num_blocks=8, max_num_batched_tokens=32)
    life.submit("equal", 9, max_tokens=3, priority=0)
    life.submit("low", 9, max_tokens=9, priority=1)
    life.step()
    life.submit("high", 25, max_tokens=1, priority=0)
    assert life.step() == "equal[9:10] low[9:10]"
    assert life.preempted() == []


def test_nobody_is_preempted_for_a_prompt_that_does_not_fit_into_the_step() -> None:
    life = life_of(
        max_num_seqs=4,
        num_blocks=64,
        enable_chunked_prefill=False,
        max_num_batched_tokens=64,
    )
    for number in range(4):
        life.submit(f"l{number}", 4, max_tokens=20, priority=1)
    life.step()
    life.submit("high", 62, max_tokens=1, priority=0)
    life.step()
    assert life.preempted() == []


def test_nobody_is_preempted_for_a_long_prompt_that_may_not_begin() -> None:
    life = life_of(
        max_num_seqs=3,
        num_blocks=64,
        max_num_batched_tokens=8,
        long_prefill_threshold_tokens=8,
        max_long_partial_prefills=1,
    )
    life.submit("l0", 2, max_tokens=30, priority=1)
    life.submit("l1", 2, max_tokens=30, priority=1)
    life.submit("long", 60, max_tokens=2, priority=0)
    life.step()
    life.submit("high", 40, max_tokens=2, priority=-1)
    life.steps(3)
    assert life.preempted() == []


def test_nobody_is_preempted_in_vain_for_one_that_shares_its_prefix() -> None:
    """high needs 5 of 6 blocks, and its equal keeps 2."""
    life = life_of(
        max_num_seqs=4, num_blocks=6, enable_prefix_sharing=True, max_num_batched_tokens=32
    )
    life.submit("equal", (7,) * 5, priority=0, max_tokens=12)
    life.submit("low", 12, priority=1, max_tokens=5)
    life.steps(2)
    life.submit("high", 17, priority=0, max_tokens=2)
    life.step()
    assert life.preempted() == []


def test_a_low_request_ages_past_high_ones() -> None:
    """B16. One level is worth 5 s: who came earlier by more goes first."""
    life = life_of(threshold=None, ageing_s=5.0)
    life.submit("busy", 2, max_tokens=2, priority=0)
    life.step()
    life.submit("low", 2, max_tokens=1, priority=1)
    for second in range(10):
        life.now = float(second)
        life.submit(f"h{second}", 2, max_tokens=1, priority=0)
        life.step()
    order = life.started()
    assert order[: order.index("low")] == ["busy", "h0", "h1", "h2", "h3", "h4"]


def test_who_has_aged_past_a_high_request_keeps_its_slot() -> None:
    life = life_of(ageing_s=5.0)
    life.submit("low", 2, max_tokens=20, priority=1)
    life.step()
    life.now = 6.0
    life.submit("high", 2, priority=0)
    life.run_dry()
    assert life.preempted() == []


def test_a_stream_of_high_requests_preempts_no_more_often_than_allowed() -> None:
    life = life_of(max_preemptions=2)
    life.submit("low", 2, max_tokens=9, priority=1)
    for number in range(4):
        life.steps(2)
        life.submit(f"h{number}", 2, max_tokens=1, priority=0)
    life.run_dry()
    assert life.preempted() == ["low"] * 2
    assert life.finished() == ["h0", "h1", "low", "h2", "h3"]


def test_within_a_class_with_a_share_high_work_displaces_low_work() -> None:
    """Both slots of the class are taken, and so is its half of the blocks."""
    classes = (ServiceClass(name="x", max_running_share=0.5), ServiceClass())
    life = life_of(classes=classes, max_num_seqs=4, num_blocks=16, max_num_batched_tokens=64)
    life.submit("low", 28, max_tokens=4, priority=5, class_name="x")
    life.step()
    life.submit("high", 16, max_tokens=2, priority=0, class_name="x")
    assert life.step() == "high[0:16]"
    assert life.preempted() == ["low"]


def test_as_a_class_policy_it_orders_and_takes_nothing() -> None:
    classes = (ServiceClass(policy=PolicyName.PRIORITY),)
    life = Life(classes=classes, max_num_seqs=1)
    life.submit("low", 2, max_tokens=3, priority=5)
    life.step()
    life.submit("lower", 2, max_tokens=1, priority=6)
    life.submit("high", 2, max_tokens=1, priority=0)
    life.run_dry()
    assert life.started() == ["low", "high", "lower"]
    assert life.preempted() == []


def test_nobody_is_preempted_for_a_slot_that_another_class_is_due() -> None:
    """x lacks blocks for its second slot, which is kept for it; high needs one of y's own."""
    classes = (
        ServiceClass(name="x", min_running_share=0.5, max_running_share=0.5),
        ServiceClass(name="y"),
    )
    life = life_of(max_num_seqs=4, num_blocks=24, max_num_batched_tokens=64, classes=classes)
    life.submit("x0", 30, class_name="x", max_tokens=10)
    for number in range(3):
        life.submit(f"y{number}", 4, class_name="y", priority=5, max_tokens=30)
    life.step()
    life.submit("x1", 30, class_name="x")
    life.step()
    life.submit("high", 4, class_name="y", priority=0)
    life.step()
    assert "high" in life.running()
    assert life.preempted() == ["y2"]
