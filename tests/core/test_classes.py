"""Service classes: weights, shares, caps of the queue, limits on output, and deadlines."""

from __future__ import annotations

from typing import Any

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import PolicyConfig
from headway.core.limits import Batching
from headway.core.plan import RequestId


def two(**of_x: Any) -> tuple[ServiceClass, ServiceClass]:
    return ServiceClass(name="x", **of_x), ServiceClass(name="y")


def submit_many(life: Life, name: str, count: int, num_prompt: int = 4, **kw: Any) -> None:
    for number in range(count):
        life.submit(f"{name}{number}", num_prompt, class_name=name, **{"max_tokens": 2, **kw})


class TestWeights:
    """Between classes with work waiting, tokens are shared out by weight."""

    def test_equal_weights_take_turns(self) -> None:
        life = Life(classes=two(), max_num_seqs=1)
        submit_many(life, "x", 4)
        submit_many(life, "y", 4)
        life.run_dry()
        assert life.started() == ["x0", "y0", "x1", "y1", "x2", "y2", "x3", "y3"]

    @pytest.mark.parametrize("weight", [2.0, 4.0])
    @pytest.mark.parametrize("num_seqs", [1, 4])
    def test_tokens_served_are_as_the_weights(self, weight: float, num_seqs: int) -> None:
        """Within one request of the ratio, at any time once both have been served."""
        life = Life(classes=two(weight=weight), max_num_seqs=num_seqs, num_blocks=64)
        submit_many(life, "x", int(20 * weight), max_tokens=4)
        submit_many(life, "y", 24, num_prompt=12, max_tokens=8)
        most = num_seqs * (12 + 2 * 8)
        while life.scheduler.statistics().classes[0].num_waiting_sequences:
            life.step()
            x, y = (
                each.num_served_input_tokens + 2 * each.num_served_output_tokens
                for each in life.scheduler.statistics().classes
            )
            assert abs(x / weight - y) <= most
        assert x == pytest.approx(weight * y, rel=0.15)

    def test_the_tokens_own_weights_count(self) -> None:
        """With output at 10, three tokens more than make up for a longer prompt."""
        policy = PolicyConfig(output_token_weight=10.0)
        life = Life(classes=two(), max_num_seqs=1, policy=policy)
        submit_many(life, "x", 6, num_prompt=12, max_tokens=1)  # 22 each
        submit_many(life, "y", 3, num_prompt=4, max_tokens=4)  # 44 each
        life.run_dry()
        assert "".join(name[0] for name in life.started()) in ("xyxxyxxyx", "xyxxyxyxx")

    def test_an_idle_class_has_no_claim_from_before(self) -> None:
        life = Life(classes=two(), max_num_seqs=1)
        submit_many(life, "x", 1, max_tokens=40)
        life.steps(39)
        submit_many(life, "y", 8)
        life.step()
        life.submit("x again", 4, class_name="x", max_tokens=2)
        life.run_dry()
        assert life.started().index("x again") <= 3

    def test_a_long_prompt_of_one_class_does_not_hold_up_another(self) -> None:
        """Once both have been served 16 tokens or more, it is chat's turn for its weight."""
        classes = (ServiceClass(name="chat", weight=8.0), ServiceClass(name="batch"))
        life = Life(classes=classes, num_blocks=64, max_model_len=200)
        submit_many(life, "batch", 1, num_prompt=150)
        life.step()
        submit_many(life, "chat", 1)
        life.steps(2)
        assert "chat0" in life.started()

    def test_what_one_class_leaves_the_other_takes(self) -> None:
        life = Life(classes=two(weight=9.0), max_num_seqs=4)
        submit_many(life, "y", 4)
        assert life.step() == "y0[0:4] y1[0:4] y2[0:4] y3[0:4]"


class TestMinimumShare:
    """``min_running_share``: slots that the class gets whenever it has work."""

    def test_it_takes_slots_from_those_above_theirs(self) -> None:
        life = Life(classes=two(min_running_share=0.5), max_num_seqs=4)
        submit_many(life, "y", 4, max_tokens=20)
        life.step()
        submit_many(life, "x", 4, max_tokens=20)
        life.step()
        assert life.running() == {"x0", "x1", "y0", "y1"}
        assert {event.cause for event in life.seen(ev.Preempted)} == {ev.PreemptionCause.SHARE}

    def test_it_takes_blocks_too(self) -> None:
        """A slot is free, and of 16 blocks one."""
        life = Life(classes=two(min_running_share=0.5), max_num_batched_tokens=64)
        submit_many(life, "y", 2, num_prompt=29, max_tokens=20)
        life.step()
        assert life.num_free_blocks == 0
        submit_many(life, "x", 1)
        plan = life.plan()
        assert "x0[0:4]" in life.read(plan)
        assert life.preempted() == ["y1"]
        life.answer(plan)

    def test_it_takes_no_more_than_its_share(self) -> None:
        life = Life(classes=two(min_running_share=0.25), max_num_seqs=4)
        submit_many(life, "y", 4, max_tokens=20)
        life.step()
        submit_many(life, "x", 4, max_tokens=20)
        life.step()
        assert life.running() == {"x0", "y0", "y1", "y2"}

    def test_without_work_its_slots_are_lent(self) -> None:
        life = Life(classes=two(min_running_share=0.5), max_num_seqs=4)
        submit_many(life, "y", 4)
        life.step()
        assert len(life.running()) == 4

    def test_a_slot_that_is_due_to_it_is_not_given_away(self) -> None:
        """x has one of its two slots, and waits for blocks for the second: y gets two of four."""
        life = Life(classes=two(min_running_share=0.5), max_num_seqs=4, max_passes=0)
        submit_many(life, "x", 2)
        submit_many(life, "y", 4)
        life.step()
        assert life.running() == {"x0", "x1", "y0", "y1"}

    def test_two_minimums_take_nothing_from_each_other(self) -> None:
        classes = (
            ServiceClass(name="x", min_running_share=0.5),
            ServiceClass(name="y", min_running_share=0.5),
        )
        life = Life(classes=classes, max_num_seqs=4)
        submit_many(life, "x", 6, max_tokens=9)
        submit_many(life, "y", 6, max_tokens=9)
        life.run_dry()
        assert life.preempted() == []

    def test_priority_does_not_take_a_minimum(self) -> None:
        policy = PolicyConfig(name=PolicyName.PRIORITY)
        life = Life(classes=two(min_running_share=0.5), max_num_seqs=2, policy=policy)
        submit_many(life, "x", 1, max_tokens=9, priority=9)
        submit_many(life, "y", 3, max_tokens=9, priority=0)
        life.step()
        assert life.running() == {"x0", "y0"}

    def test_a_part_of_a_slot_is_a_whole_one(self) -> None:
        """A hundredth of four slots is one; 0.07 of a hundred are seven."""
        life = Life(classes=two(min_running_share=0.01), max_num_seqs=4)
        assert life.scheduler.work.accounts["x"].min_running == 1
        life = Life(
            classes=two(min_running_share=0.07), max_num_seqs=100, max_num_batched_tokens=100
        )
        assert life.scheduler.work.accounts["x"].min_running == 7

    def test_no_slot_is_kept_empty_for_a_class_that_may_not_take_it(self) -> None:
        """Half of three is two at least, and one at most: the most holds."""
        classes = (
            ServiceClass(name="x", min_running_share=0.5, max_running_share=0.5),
            ServiceClass(name="y"),
        )
        life = Life(classes=classes, max_num_seqs=3)
        submit_many(life, "x", 3)
        submit_many(life, "y", 3)
        life.step()
        assert life.running() == {"x0", "y0", "y1"}

    def test_no_slot_is_kept_for_a_class_that_lacks_its_share_of_blocks(self) -> None:
        """x may have 12 of 24 blocks, and x0 has 8: x1 can't start, so y has three slots."""
        life = Life(
            classes=two(min_running_share=0.5, max_running_share=0.5),
            num_blocks=24,
            max_num_batched_tokens=64,
        )
        submit_many(life, "x", 2, num_prompt=30, max_tokens=9)
        submit_many(life, "y", 3, max_tokens=9)
        life.steps(2)
        assert life.running() == {"x0", "y0", "y1", "y2"}


class TestMaximumShare:
    """``max_running_share``: of slots, blocks and step tokens, for the highest class too."""

    def test_slots(self) -> None:
        life = Life(classes=two(max_running_share=0.5), max_num_seqs=4)
        submit_many(life, "x", 6)
        assert life.step() == "x0[0:4] x1[0:4]", "though two slots stay empty"

    def test_the_highest_priority_too(self) -> None:
        policy = PolicyConfig(name=PolicyName.PRIORITY)
        life = Life(classes=two(max_running_share=0.5), max_num_seqs=4, policy=policy)
        submit_many(life, "y", 4, priority=9, max_tokens=9)
        life.step()
        submit_many(life, "x", 4, priority=0, max_tokens=9)
        life.step()
        assert sum(name[0] == "x" for name in life.running()) == 2
        assert len(life.preempted()) == 2

    def test_one_always_runs(self) -> None:
        life = Life(classes=two(max_running_share=0.01), max_num_seqs=4)
        submit_many(life, "x", 2)
        life.step()
        assert life.running() == {"x0"}

    def test_blocks(self) -> None:
        """Half of 16 are 8: two sequences of 3 and, once it grows, one of 4 do not fit."""
        life = Life(classes=two(max_running_share=0.5), max_num_seqs=8, max_num_batched_tokens=64)
        submit_many(life, "x", 4, num_prompt=12)
        life.step()
        assert life.running() == {"x0", "x1"}

    def test_blocks_when_it_grows(self) -> None:
        """Each grows to 5 blocks, and 8 are allowed: the younger gives way to the older."""
        life = Life(classes=two(max_running_share=0.5), max_num_seqs=8, max_num_batched_tokens=64)
        submit_many(life, "x", 2, num_prompt=12, max_tokens=8)
        most = 0
        while life.scheduler.statistics().num_live:
            life.step()
            most = max(most, life.scheduler.statistics().classes[0].num_blocks)
        assert life.preempted() == ["x1"]
        assert most == 8

    def test_one_sequence_may_be_as_long_as_the_pool(self) -> None:
        life = Life(classes=two(max_running_share=0.25))
        assert isinstance(life.submit("a", 60, max_tokens=4, class_name="x"), ev.Admitted)
        life.run_dry()
        assert life.finished() == ["a"]

    def test_blocks_that_it_shares_count_once(self) -> None:
        life = Life(
            classes=two(max_running_share=0.75),
            num_blocks=16,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            enable_prefix_sharing=True,
        )
        submit_many(life, "x", 1, num_prompt=33, max_tokens=9)
        life.step()
        life.submit("same", 33, max_tokens=2, class_name="x")
        assert life.step() == "x0[33:34] same[32:33]"

    def test_step_tokens(self) -> None:
        """Half of 16: a long prompt gets 8 a step though nobody else wants the rest."""
        life = Life(classes=two(max_running_share=0.5))
        submit_many(life, "x", 1, num_prompt=20)
        assert life.steps(3) == ["x0[0:8]", "x0[8:16]", "x0[16:20]"]

    def test_step_tokens_with_decodes(self) -> None:
        life = Life(classes=two(max_running_share=0.5))
        submit_many(life, "x", 2, num_prompt=4, max_tokens=9)
        life.step()
        life.cancel("x1")
        life.submit("long", 20, class_name="x")
        assert life.step() == "x0[4:5] long[0:7]"

    def test_a_class_without_tokens_left_stops_nobody_else(self) -> None:
        """batch is first in line by its weight, and has used up its half of the step."""
        classes = (
            ServiceClass(name="batch", max_running_share=0.5, weight=100.0),
            ServiceClass(name="chat"),
        )
        life = Life(classes=classes, num_blocks=64)
        submit_many(life, "batch", 2, num_prompt=30)
        life.step()
        submit_many(life, "chat", 1)
        assert life.step() == "batch0[8:16] chat0[0:4]"


class TestCaps:
    """Caps of the queue, in requests and in tokens, of a class and of all."""

    def test_waiting_requests_of_a_class(self) -> None:
        life = Life(classes=two(max_queue_requests=1), max_num_seqs=1)
        submit_many(life, "x", 2)
        refused = life.refused("x2", 4, class_name="x")
        assert refused.reason is ev.RejectReason.QUEUE_FULL
        assert refused.message == (
            "The queue of class x is full: with this request 2 sequences would wait for a slot, "
            "and 1 may."
        )
        assert refused.retry_after_s is not None
        assert isinstance(life.submit("y0", 4, class_name="y"), ev.Admitted)

    def test_slots_that_its_share_denies_it_are_not_free_for_it(self) -> None:
        life = Life(classes=two(max_queue_requests=1, max_running_share=0.25), max_num_seqs=4)
        submit_many(life, "x", 2)
        assert life.refused("x2", 4, class_name="x").reason is ev.RejectReason.QUEUE_FULL

    def test_waiting_tokens_of_a_class(self) -> None:
        life = Life(classes=two(max_queue_tokens=10))
        submit_many(life, "x", 2)
        refused = life.refused("x2", 4, class_name="x")
        assert refused.message == (
            "The queue of class x is full: it would hold 12 prompt tokens, and 10 may wait."
        )
        assert isinstance(life.submit("y0", 40, class_name="y"), ev.Admitted)

    def test_one_request_may_always_wait(self) -> None:
        life = Life(classes=two(max_queue_tokens=10))
        assert isinstance(life.submit("a", 40, class_name="x"), ev.Admitted)

    def test_the_cap_of_all_counts_all_classes(self) -> None:
        life = Life(classes=two(), max_num_seqs=1, max_queue_requests=1)
        submit_many(life, "x", 2)
        refused = life.refused("y0", 4, class_name="y")
        assert refused.message == (
            "The queue is full: with this request 2 sequences would wait for a slot, and 1 may."
        )

    def test_none_may_wait(self) -> None:
        """Zero: what a free slot can take at once is let in, and nothing else."""
        life = Life(classes=two(max_queue_requests=0), max_num_seqs=2)
        submit_many(life, "x", 2)
        assert life.refused("x2", 4, class_name="x").reason is ev.RejectReason.QUEUE_FULL

    def test_the_slots_of_a_running_static_batch_are_free_for_nobody(self) -> None:
        life = Life(batching=Batching.STATIC, max_num_seqs=4, max_queue_requests=1)
        life.submit("a", 4)
        life.step()
        life.submit("b", 4)
        assert life.refused("c", 4).reason is ev.RejectReason.QUEUE_FULL

    def test_an_unknown_class_is_refused_by_name(self) -> None:
        refused = Life(classes=two()).refused("a", 4, class_name="z")
        assert refused.reason is ev.RejectReason.INVALID
        assert refused.message == "There is no class 'z'; there are: x, y."


class TestOutputCap:
    """``max_output_tokens`` cuts, and says so."""

    def test_longer_answers_are_cut_and_the_client_is_told(self) -> None:
        life = Life(classes=(ServiceClass(max_output_tokens=3),))
        answer = life.submit("a", 4, max_tokens=10)
        assert isinstance(answer, ev.Admitted)
        assert answer.clamped_max_tokens == 3
        life.run_dry()
        assert len(life.seen(ev.TokenReady)) == 3
        (end,) = life.seen(ev.SequenceFinished)
        assert end.reason is ev.FinishReason.LENGTH

    def test_others_are_not(self) -> None:
        life = Life(classes=(ServiceClass(max_output_tokens=3),))
        answer = life.submit("a", 4, max_tokens=3)
        assert isinstance(answer, ev.Admitted)
        assert answer.clamped_max_tokens is None

    def test_what_fits_once_it_is_cut_is_taken(self) -> None:
        life = Life(classes=(ServiceClass(max_output_tokens=4),))
        assert isinstance(life.submit("a", 60, max_tokens=1000), ev.Admitted)

    def test_the_executor_is_told_the_same(self) -> None:
        life = Life(classes=(ServiceClass(max_output_tokens=3),))
        life.submit("a", 4, max_tokens=10, min_tokens=8)
        (new,) = life.plan().new_sequences
        assert (new.sampling.max_tokens, new.sampling.min_tokens) == (3, 3)

    def test_a_request_that_contradicts_itself_is_refused_all_the_same(self) -> None:
        life = Life(classes=(ServiceClass(max_output_tokens=3),))
        refused = life.refused("a", 4, max_tokens=10, min_tokens=12)
        assert refused.reason is ev.RejectReason.INVALID


class TestDeadlines:
    """Those of the class and of the request: the sooner one holds."""

    @pytest.mark.parametrize(
        ("own", "of_class", "expected"),
        [(None, 5.0, 5.0), (3.0, 5.0, 3.0), (9.0, 5.0, 5.0), (3.0, None, 3.0)],
    )
    def test_waiting(self, own: float | None, of_class: float | None, expected: float) -> None:
        life = Life(classes=(ServiceClass(queue_timeout_s=of_class),), max_num_seqs=1)
        life.submit("busy", 2, max_tokens=60, queue_timeout_s=99.0)
        life.step()
        life.submit("a", 2, queue_timeout_s=own)
        life.now = expected - 0.001
        life.step()
        assert life.seen(ev.Expired) == []
        life.now = expected
        life.step()
        assert life.seen(ev.Expired) == [
            ev.Expired(RequestId("a"), ev.ExpireReason.QUEUE_TIMEOUT, expected)
        ]

    @pytest.mark.parametrize(
        ("own", "of_class", "expected"), [(None, 5.0, 5.0), (3.0, 5.0, 3.0), (9.0, 5.0, 5.0)]
    )
    def test_in_all(self, own: float | None, of_class: float, expected: float) -> None:
        life = Life(classes=(ServiceClass(request_timeout_s=of_class),))
        life.submit("a", 2, max_tokens=60, request_timeout_s=own)
        life.step()
        life.now = expected - 0.001
        life.step()
        life.now = expected
        life.idle()
        assert life.seen(ev.Expired) == [
            ev.Expired(RequestId("a"), ev.ExpireReason.REQUEST_TIMEOUT, expected)
        ]
        assert life.num_free_blocks == 16

    def test_who_runs_does_not_time_out_in_the_queue(self) -> None:
        """Nor does it when it is preempted and waits once more."""
        life = Life(num_blocks=4, classes=(ServiceClass(queue_timeout_s=1.0),))
        life.submit("old", 4, max_tokens=10)
        life.submit("new", 4, max_tokens=10)
        life.run_dry(step_s=0.5)
        assert life.preempted() == ["new"]
        assert life.finished() == ["old", "new"]
