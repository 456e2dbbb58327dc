"""Holding new work back so that a batch can fill: within its bounds, and only as long as it helps.

Step costs are nothing in most tests, so that the slack of a target is the target.
"""

from __future__ import annotations

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import ServiceClass
from headway.core.costs import StepCosts
from headway.core.plan import StepPlan

FREE = StepCosts(base_s=0.0, prefill_token_s=0.0, decode_s=0.0, swap_block_s=0.0)


def test_work_is_held_for_the_set_time_and_goes_together() -> None:
    life = Life(max_waiting_time_s=2.0)
    life.submit("a", 2)
    life.now = 1.5
    life.submit("b", 2)
    assert life.idle().until == 2.0, "the first one decides"
    life.now = 2.0
    assert life.step() == "a[0:2] b[0:2]"


def test_a_hold_is_over_at_its_bound_and_not_before() -> None:
    life = Life(max_waiting_time_s=2.0)
    life.submit("a", 2)
    life.now = 1.999
    assert life.idle().until == 2.0
    life.now = 2.0
    assert isinstance(life.schedule(), StepPlan)


def test_nobody_is_held_when_the_batch_is_full() -> None:
    life = Life(max_waiting_time_s=2.0, max_num_seqs=2)
    life.submit("a", 2)
    assert life.idle().until == 2.0
    life.submit("b", 2)
    assert life.step() == "a[0:2] b[0:2]"


def test_running_work_counts_for_the_batch() -> None:
    """One slot is free, so one waiting request fills the batch."""
    life = Life(max_waiting_time_s=2.0, max_num_seqs=2)
    life.submit("a", 2, max_tokens=9)
    life.now = 2.0
    life.step()
    life.submit("b", 2)
    assert life.step() == "a[2:3] b[0:2]"


def test_decodes_go_on_while_new_work_is_held() -> None:
    life = Life(max_waiting_time_s=2.0)
    life.submit("a", 2, max_tokens=9)
    life.now = 2.0
    life.step()
    life.submit("b", 2)
    assert life.steps(2) == ["a[2:3]", "a[3:4]"]
    life.now = 4.0
    assert life.step() == "a[4:5] b[0:2]"


def test_a_class_sets_its_own_bound() -> None:
    classes = (
        ServiceClass(name="batch", max_waiting_time_s=9.0),
        ServiceClass(name="chat", max_waiting_time_s=0.0),
        ServiceClass(),
    )
    life = Life(max_waiting_time_s=2.0, classes=classes)
    life.submit("a", 2, class_name="batch", max_tokens=1)
    life.submit("b", 2, max_tokens=1)
    life.submit("c", 2, class_name="chat", max_tokens=1)
    assert life.step() == "c[0:2]"
    assert life.idle().until == 2.0
    life.now = 2.0
    assert life.step() == "b[0:2]"
    assert life.idle().until == 9.0


def test_no_hold_outlives_the_slack_of_a_target_less_a_margin() -> None:
    classes = (ServiceClass(ttft_target_s=0.5),)
    life = Life(max_waiting_time_s=2.0, classes=classes, costs=FREE)
    life.submit("a", 2)
    assert life.idle().until == pytest.approx(0.95 * 0.5)


def test_slack_is_the_target_less_the_time_that_the_prompt_takes() -> None:
    """0.5 s - 0.01 s for the step - 10 tokens of 0.02 s; and two steps of 4 decodes aside."""
    costs = StepCosts(base_s=0.01, prefill_token_s=0.02, decode_s=0.005)
    life = Life(max_waiting_time_s=2.0, classes=(ServiceClass(ttft_target_s=0.5),), costs=costs)
    life.submit("a", 10)
    assert life.idle().until == pytest.approx(0.95 * 0.29 - 2 * (0.01 + 4 * 0.005))


def test_without_slack_there_is_no_hold() -> None:
    costs = StepCosts(base_s=1.0)
    life = Life(max_waiting_time_s=2.0, classes=(ServiceClass(ttft_target_s=0.5),), costs=costs)
    life.submit("a", 2)
    assert life.step() == "a[0:2]"


def test_one_slack_lets_the_whole_batch_of_its_class_go() -> None:
    costs = StepCosts(base_s=0.0, prefill_token_s=0.1, decode_s=0.0)
    life = Life(max_waiting_time_s=9.0, classes=(ServiceClass(ttft_target_s=2.0),), costs=costs)
    life.submit("a", 2)  # slack 1.8 s
    life.submit("b", 12)  # slack 0.8 s
    assert life.idle().until == pytest.approx(0.95 * 0.8)
    life.now = 0.8
    assert life.step() == "a[0:2] b[0:12]"


def test_preempted_work_is_never_held() -> None:
    life = Life(max_waiting_time_s=5.0, num_blocks=4, max_num_batched_tokens=8)
    life.submit("old", 4, max_tokens=10)
    life.submit("new", 4, max_tokens=10)
    life.now = 5.0
    life.run_dry()
    assert life.preempted() == ["new"]
    assert life.finished() == ["old", "new"]
    assert life.now == 5.0


def test_who_ends_while_held_is_forgotten() -> None:
    life = Life(max_waiting_time_s=5.0)
    life.submit("gone", 2)
    life.now = 1.0
    life.submit("stays", 2)
    life.cancel("gone")
    assert life.idle().until == 6.0
    seen = life.scheduler.statistics().classes[0]
    assert (seen.num_waiting_sequences, seen.num_held) == (1, 1)


def test_idle_names_the_sooner_of_hold_and_deadline() -> None:
    life = Life(max_waiting_time_s=5.0)
    life.submit("a", 2, queue_timeout_s=3.0)
    assert life.idle().until == 3.0
    life.now = 3.0
    assert life.idle().events == (
        ev.Expired("a", ev.ExpireReason.QUEUE_TIMEOUT, 3.0),  # type: ignore[arg-type]
    )


def test_all_sequences_of_a_request_count_for_a_full_batch() -> None:
    life = Life(max_waiting_time_s=5.0, max_num_seqs=3)
    life.submit("a", 2, n=3)
    assert life.step() == "a[0:2] a.1[0:2] a.2[0:2]"


def test_with_sharing_too_all_sequences_of_a_request_count_for_a_full_batch() -> None:
    life = Life(max_waiting_time_s=5.0, max_num_seqs=3, enable_prefix_sharing=True)
    life.submit("a", 2, n=3)
    assert life.step() == "a[0:2]"


def test_two_classes_fill_one_batch_together() -> None:
    classes = (ServiceClass(name="x"), ServiceClass(name="y"))
    life = Life(max_waiting_time_s=5.0, max_num_seqs=2, classes=classes)
    life.submit("a", 2, class_name="x")
    life.submit("b", 2, class_name="y")
    assert life.step() == "a[0:2] b[0:2]"


def test_who_need_not_be_held_takes_the_others_along() -> None:
    """a's sibling joins the running batch in any case, so nothing is gained by holding b back."""
    life = Life(max_waiting_time_s=5.0, max_num_seqs=8, enable_prefix_sharing=True)
    life.submit("a", 2, n=2, max_tokens=4)
    life.now = 5.0
    plan = life.plan()
    life.submit("b", 2)
    life.answer(plan)
    assert life.step() == "a[2:3] a.1[1:2] b[0:2]"
