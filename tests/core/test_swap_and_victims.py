"""Preemption: who gives way to whom, how often, and what becomes of the keys and values."""

from __future__ import annotations

from typing import Any

import pytest
from lives import Life

from headway.core import events as ev
from headway.core.classes import ServiceClass
from headway.core.costs import StepCosts
from headway.core.limits import PreemptionChoice, VictimChoice
from headway.core.plan import BlockMove, RequestId, TableUpdate


def crowded(**changes: Any) -> Life:
    """Two sequences that need four blocks each in the end, and four blocks.

    In step 6 (the sixth) both want their third block, and new gives way to old.
    """
    life = Life(**{"num_blocks": 4, "max_num_batched_tokens": 8, **changes})
    life.submit("old", 4, max_tokens=10)
    life.submit("new", 4, max_tokens=10)
    life.steps(5)
    return life


def swapping(**changes: Any) -> Life:
    values = {"num_swap_blocks": 4, "preemption_mode": PreemptionChoice.SWAP, **changes}
    return crowded(**values)


class TestSwap:
    """The blocks of a preempted sequence move out, and back when it resumes."""

    def test_blocks_move_out_and_back(self) -> None:
        life = swapping()
        table = life.table("new")
        plan = life.plan()
        assert plan.events == (
            ev.Preempted(
                RequestId("new"),
                0,
                0,
                ev.PreemptionMode.SWAP,
                ev.PreemptionCause.BLOCKS,
                num_swapped_blocks=2,
                why="preemption_mode = swap",
            ),
        )
        assert plan.swap_out == (BlockMove(table[0], 0), BlockMove(table[1], 1))
        assert life.read(plan) == "old[8:9]"
        assert life.scheduler.statistics().num_free_swap_blocks == 2
        life.answer(plan)
        assert life.steps(4) == ["old[9:10]", "old[10:11]", "old[11:12]", "old[12:13]"]

        plan = life.plan()
        assert plan.events == (ev.Resumed(RequestId("new"), 0, 8),)
        assert life.read(plan) == "new[8:9]", "nothing is recomputed"
        table = life.table("new")
        assert plan.swap_in == (BlockMove(0, table[0]), BlockMove(1, table[1]))
        assert plan.table_updates == (TableUpdate(plan.slices[0].sequence_id, 0, tuple(table)),)
        life.answer(plan)
        life.run_dry()
        seen = life.scheduler.statistics()
        assert (seen.num_swapped_out_blocks, seen.num_swapped_in_blocks) == (2, 2)
        assert (seen.num_free_blocks, seen.num_free_swap_blocks) == (4, 4)

    def test_a_full_swap_space_means_recompute_and_says_so(self) -> None:
        life = swapping(num_swap_blocks=1)
        (event,) = life.plan().events
        assert isinstance(event, ev.Preempted)
        assert event.mode is ev.PreemptionMode.RECOMPUTE
        assert event.num_lost_tokens == 8
        assert event.why == "the swap space has 1 blocks free, and 2 are needed"

    def test_cancelled_while_swapped_out_it_frees_all(self) -> None:
        life = swapping()
        life.step()
        life.cancel("new")
        seen = life.scheduler.statistics()
        assert (seen.num_free_swap_blocks, seen.num_preempted) == (4, 0)
        life.run_dry()
        assert life.finished() == ["old"]
        assert life.num_free_blocks == 4

    def test_expired_while_swapped_out_it_frees_all(self) -> None:
        life = Life(
            num_blocks=4,
            max_num_batched_tokens=8,
            num_swap_blocks=4,
            preemption_mode=PreemptionChoice.SWAP,
        )
        life.submit("old", 4, max_tokens=10)
        life.submit("new", 4, max_tokens=10, request_timeout_s=5.0)
        life.steps(6)
        life.now = 5.0
        life.step()
        assert len(life.seen(ev.Expired)) == 1
        assert life.scheduler.statistics().num_free_swap_blocks == 4

    def test_after_a_lost_step_what_it_moved_out_is_computed_again(self) -> None:
        """Nobody knows whether the blocks arrived in the swap space."""
        life = swapping()
        events = life.lose(life.plan())
        assert [type(event) for event in events] == [ev.Failed], "old was computed in it"
        assert life.scheduler.statistics().num_free_swap_blocks == 4
        assert life.step() == "new[0:8]"
        life.run_dry()
        assert life.finished() == ["new"]

    def test_a_prefill_that_is_swapped_out_goes_on_where_it_was(self) -> None:
        life = Life(
            num_blocks=8,
            max_num_batched_tokens=8,
            num_swap_blocks=8,
            preemption_mode=PreemptionChoice.SWAP,
        )
        life.submit("old", 4, max_tokens=17)
        life.submit("long", 27, max_tokens=2)
        life.run_dry()
        assert life.preempted() == ["long"]
        (resumed,) = life.seen(ev.Resumed)
        assert resumed.num_kept_tokens > 0
        assert life.finished() == ["old", "long"]


class TestAuto:
    """The cheaper way, by the step costs."""

    def test_it_swaps_where_that_is_cheaper(self) -> None:
        """8 tokens of 50 µs against two blocks of 20 µs, out and back."""
        life = swapping(
            preemption_mode=PreemptionChoice.AUTO,
            costs=StepCosts(prefill_token_s=50e-6, swap_block_s=20e-6),
        )
        (event,) = life.plan().events
        assert isinstance(event, ev.Preempted)
        assert event.mode is ev.PreemptionMode.SWAP
        assert event.why == "swap is cheaper: recompute 0.4 ms, swap 0.08 ms"

    def test_it_recomputes_where_that_is_cheaper(self) -> None:
        life = swapping(
            preemption_mode=PreemptionChoice.AUTO,
            costs=StepCosts(prefill_token_s=1e-6, swap_block_s=1e-3),
        )
        plan = life.plan()
        (event,) = plan.events
        assert isinstance(event, ev.Preempted)
        assert event.mode is ev.PreemptionMode.RECOMPUTE
        assert event.why == "recompute is cheaper: recompute 0.008 ms, swap 4 ms"
        assert plan.swap_out == ()

    def test_without_a_swap_space_it_recomputes(self) -> None:
        life = swapping(preemption_mode=PreemptionChoice.AUTO, num_swap_blocks=0)
        (event,) = life.plan().events
        assert isinstance(event, ev.Preempted)
        assert event.why == "the swap space has 0 blocks free, and 2 are needed"


class TestVictims:
    """Among those with less right to their place, the one that loses least."""

    def test_the_junior_with_the_least_work_gives_way(self) -> None:
        """big is the newest, but it loses 16 positions, and small 8."""
        life = Life(num_blocks=8, max_num_batched_tokens=32)
        life.submit("old", 4, max_tokens=6)
        life.submit("small", 4, max_tokens=6)
        life.submit("big", 12, max_tokens=6)
        life.steps(5)
        plan = life.plan()
        assert life.read(plan) == "old[8:9] big[16:17]"
        assert [(e.request_id, e.num_lost_tokens) for e in life.seen(ev.Preempted)] == [
            ("small", 8)
        ]

    def test_or_the_newest_gives_way_though_it_loses_more(self) -> None:
        life = Life(num_blocks=8, max_num_batched_tokens=32, preemption_victim=VictimChoice.NEWEST)
        life.submit("old", 4, max_tokens=6)
        life.submit("small", 4, max_tokens=6)
        life.submit("big", 12, max_tokens=6)
        life.steps(5)
        assert life.read(life.plan()) == "old[8:9] small[8:9]"
        assert [(e.request_id, e.num_lost_tokens) for e in life.seen(ev.Preempted)] == [("big", 16)]

    def test_nobody_gives_way_to_a_junior(self) -> None:
        """new needs a block first; it could take one of old's only, so it gives way itself."""
        life = Life(num_blocks=4)
        life.submit("old", 5, max_tokens=12)
        life.submit("new", 8, max_tokens=6)
        life.step()
        plan = life.plan()
        assert life.read(plan) == "old[5:6]"
        assert life.preempted() == ["new"]
        life.answer(plan)
        life.run_dry()
        assert life.finished() == ["old", "new"]

    @pytest.mark.parametrize("victim", VictimChoice)
    def test_best_effort_work_goes_first_though_it_is_oldest_and_loses_most(
        self, victim: VictimChoice
    ) -> None:
        classes = (ServiceClass(), ServiceClass(name="eval", best_effort=True))
        life = Life(num_blocks=6, classes=classes, preemption_victim=victim)
        life.submit("eval", 8, max_tokens=9, class_name="eval")
        life.submit("a", 4, max_tokens=13)
        life.submit("b", 4, max_tokens=13)
        life.run_dry()
        assert life.preempted()[0] == "eval"

    def test_best_effort_work_takes_blocks_from_nobody_else(self) -> None:
        classes = (ServiceClass(), ServiceClass(name="eval", best_effort=True))
        life = Life(num_blocks=4, classes=classes)
        life.submit("eval", 8, max_tokens=5, class_name="eval")
        life.submit("a", 5, max_tokens=10)
        life.run_dry()
        assert set(life.preempted()) == {"eval"}

    def test_a_step_that_preempts_lets_nobody_in(self) -> None:
        life = crowded(max_num_seqs=4)
        life.submit("tiny", 1, max_tokens=1)
        plan = life.plan()
        assert life.read(plan) == "old[8:9]"
        life.answer(plan)


class TestHowOften:
    """``max_preemptions``, and whole-life reservation beyond."""

    def storm(self, life: Life) -> dict[str, int]:
        """Submit six requests that all grow to a third of the pool; how often each gave way."""
        for number in range(6):
            life.submit(f"r{number}", 3, max_tokens=14)
        life.run_dry()
        assert len(life.finished()) == 6
        names = life.preempted()
        return {name: names.count(name) for name in names}

    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_nobody_is_preempted_more_often_than_allowed(self, most: int) -> None:
        counts = self.storm(Life(num_blocks=9, max_num_seqs=6, max_preemptions=most))
        assert counts
        assert max(counts.values()) <= most

    def test_never_means_that_all_blocks_are_set_aside_at_the_start(self) -> None:
        """Each needs 16 positions in the end, 4 blocks, so two run at a time on 9."""
        life = Life(num_blocks=9, max_num_seqs=6, max_preemptions=0)
        for number in range(6):
            life.submit(f"r{number}", 3, max_tokens=14)
        assert life.step() == "r0[0:3] r1[0:3]"
        assert life.num_free_blocks == 7, "set aside, not taken"
        life.run_dry()
        assert life.preempted() == []
        assert len(life.finished()) == 6

    def test_after_the_last_one_it_waits_for_all_blocks_that_it_can_need(self) -> None:
        life = crowded(max_preemptions=1)
        life.step()
        assert life.preempted() == ["new"]
        life.run_dry()
        (resumed,) = life.seen(ev.Resumed)
        place = life.events.index(resumed)
        assert ev.Finished(RequestId("old")) in life.events[:place]

    def test_a_promise_is_kept_against_newcomers(self) -> None:
        """Once new runs on a promise of 4 of 7 blocks, others have three to share."""
        life = crowded(max_preemptions=1, num_blocks=7, max_num_seqs=6)
        life.submit("x", 8, max_tokens=5)
        life.submit("y", 8, max_tokens=5)
        life.run_dry()
        assert len(life.finished()) == 4
        names = life.preempted()
        assert all(names.count(name) <= 1 for name in names)


def test_a_resumed_sequence_keeps_its_place() -> None:
    """Those that came after it wait, though they are smaller."""
    life = crowded(max_passes=0, max_num_seqs=2)
    life.submit("later", 1, max_tokens=2)
    life.run_dry()
    order = [
        event.request_id for event in life.events if isinstance(event, ev.Started | ev.Resumed)
    ]
    assert order == ["old", "new", "new", "later"]


def test_a_request_that_outgrows_the_pool_alone_is_refused_at_once() -> None:
    life = Life(num_blocks=4, max_model_len=64)
    refused = life.refused("a", 8, max_tokens=10)  # 17 positions
    assert refused.reason is ev.RejectReason.KV_CAPACITY
    assert "17 tokens" in refused.message
    assert "16 (4 blocks of 4)" in refused.message
    assert refused.retry_after_s is None
    assert isinstance(life.submit("b", 8, max_tokens=9), ev.Admitted)
    life.run_dry()
    assert life.finished() == ["b"]


def test_each_sequence_of_a_request_counts_alone() -> None:
    """n = 4 of half of the pool each run in turns."""
    life = Life(num_blocks=4, max_model_len=64)
    assert isinstance(life.submit("a", 4, max_tokens=5, n=4), ev.Admitted)
    life.run_dry()
    assert life.finished() == ["a"]


@pytest.mark.parametrize("mode", [PreemptionChoice.RECOMPUTE, PreemptionChoice.SWAP])
def test_equal_work_does_not_take_turns_in_preempting(mode: PreemptionChoice) -> None:
    """B16, B18: the older of two equals is never preempted, and the younger waits for its end."""
    life = Life(num_blocks=6, num_swap_blocks=6, preemption_mode=mode, max_preemptions=100)
    life.submit("a", 8, max_tokens=13)
    life.submit("b", 8, max_tokens=13)
    life.run_dry()
    assert life.preempted() == ["b"]
    assert life.finished() == ["a", "b"]


@pytest.mark.parametrize("num_seqs", [2, 4, 8])
def test_a_full_pool_makes_no_storm(num_seqs: int) -> None:
    """Work that is thrown away stays below the work that counts."""
    life = Life(num_blocks=16, max_num_seqs=num_seqs, watermark_blocks=1)
    for number in range(12):
        life.submit(f"r{number}", 8, max_tokens=24)
    life.run_dry()
    assert len(life.finished()) == 12
    lost = sum(event.num_lost_tokens for event in life.seen(ev.Preempted))
    assert lost < 12 * 31


def test_the_watermark_keeps_blocks_for_those_that_run() -> None:
    """The second one would fit into 2 + 2 blocks of 4, but one shall stay free."""
    life = Life(num_blocks=4, watermark_blocks=1)
    life.submit("a", 8)
    life.submit("b", 8)
    assert life.step() == "a[0:8]"
    life = Life(num_blocks=4)
    life.submit("a", 8)
    life.submit("b", 8)
    assert life.step() == "a[0:8] b[0:8]"


def test_alone_a_sequence_may_use_the_watermark_too() -> None:
    life = Life(num_blocks=4, watermark_blocks=2)
    life.submit("a", 12, max_tokens=5)
    life.run_dry()
    assert life.finished() == ["a"]
