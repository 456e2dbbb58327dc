"""Decisions of the scheduler, one by one, on small pools."""

from __future__ import annotations

from typing import Any

import pytest
from lives import Life, limits

from headway.core import events as ev
from headway.core.plan import (
    Idle,
    PromptLogprobs,
    RequestId,
    StepResult,
    TokenLogprobs,
)
from headway.errors import InvariantError


def test_decodes_come_before_prefill_chunks() -> None:
    life = Life()
    life.submit("short", 4)
    assert life.step() == "short[0:4]"
    life.submit("long", 40)
    assert life.steps(2) == ["short[4:5] long[0:15]", "short[5:6] long[15:30]"]


def test_chunk_limit_bounds_each_slice() -> None:
    life = Life(max_prefill_chunk_tokens=5)
    life.submit("a", 12)
    life.submit("b", 12)
    assert life.steps(3) == ["a[0:5] b[0:5]", "a[5:10] b[5:10]", "a[10:12] b[10:12]"]


def test_without_chunking_a_prompt_is_computed_whole_or_not_yet() -> None:
    life = Life(enable_chunked_prefill=False, max_num_batched_tokens=70, num_blocks=32)
    life.submit("a", 40)
    life.submit("b", 20)
    life.submit("c", 20)
    assert life.steps(2) == ["a[0:40] b[0:20]", "a[40:41] b[20:21] c[0:20]"]


def test_newest_is_preempted_and_resumes_at_its_place() -> None:
    life = Life(num_blocks=4, max_num_batched_tokens=8, max_passes=0)
    life.submit("old", 4, max_tokens=10)
    life.submit("new", 4, max_tokens=10)
    life.steps(5)
    plan = life.plan()
    lost = ev.Preempted(RequestId("new"), 0, 8, why="preemption_mode = recompute")
    assert plan.events == (lost,)
    assert life.read(plan) == "old[8:9]"
    life.answer(plan)
    life.submit("newer", 1, max_tokens=10)
    life.run_dry()
    assert life.finished() == ["old", "new", "newer"], "it kept its place"


def test_two_halves_of_the_pool_do_not_deadlock() -> None:
    """B14: two prompts that together exceed the pool, both started in part, must both finish."""
    life = Life(num_blocks=10, max_num_batched_tokens=8)
    life.submit("a", 30)
    life.submit("b", 30)
    life.run_dry()
    assert life.scheduler.statistics().num_finished == 2


def test_preempted_work_resumes_only_when_it_can_progress() -> None:
    """B15: total recomputation stays below twice the prompt."""
    life = Life(num_blocks=12, max_num_batched_tokens=8, max_model_len=48)
    life.submit("decoding", 8, max_tokens=28)
    life.submit("long", 24, max_tokens=4)
    life.run_dry()
    assert sorted(life.finished()) == ["decoding", "long"]
    assert sum(e.num_lost_tokens for e in life.seen(ev.Preempted)) < 2 * 24


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "reason", "numbers"),
    [
        (65, 0, ev.RejectReason.CONTEXT_LENGTH, ("64", "65")),
        (60, 5, ev.RejectReason.CONTEXT_LENGTH, ("64", "65", "60", "5")),
        (50, 14, ev.RejectReason.KV_CAPACITY, ("63", "32", "8 blocks of 4")),
        (0, 4, ev.RejectReason.INVALID, ("empty",)),
    ],
)
def test_what_can_never_fit_is_refused_with_the_numbers(
    num_prompt: int, max_tokens: int, reason: ev.RejectReason, numbers: tuple[str, ...]
) -> None:
    """B12: and what comes behind it is served."""
    life = Life(num_blocks=8)
    answer = life.refused("big", num_prompt, max_tokens=max_tokens)
    assert answer.reason is reason
    assert answer.retry_after_s is None
    for number in numbers:
        assert number in answer.message
    life.submit("small", 4)
    life.run_dry()
    assert life.scheduler.statistics().num_finished == 1


def test_the_largest_request_that_fits_finishes() -> None:
    life = Life(num_blocks=8)
    assert isinstance(life.submit("full", 20, max_tokens=13), ev.Admitted)
    life.run_dry()
    assert life.scheduler.statistics().num_finished == 1


def test_queue_cap_counts_those_beyond_the_free_slots() -> None:
    """B55: one slot, one place to wait, six at once: two are taken, four hear when to return."""
    life = Life(max_num_seqs=1, max_queue_requests=1)
    answers = [life.submit(f"r{number}", 2) for number in range(6)]
    assert [isinstance(a, ev.Admitted) for a in answers] == [True, True] + [False] * 4
    refused = answers[-1]
    assert isinstance(refused, ev.Rejected)
    assert refused.reason is ev.RejectReason.QUEUE_FULL
    assert refused.retry_after_s == 1.0


def test_retry_after_follows_the_measured_drain() -> None:
    life = Life(max_num_seqs=1, max_queue_requests=2)
    for number in range(12):
        life.submit(f"r{number}", 2, max_tokens=1)
        life.step()
        life.now += 3.0
    answers = [life.submit(f"late{number}", 2) for number in range(4)]
    refused = answers[-1]
    assert isinstance(refused, ev.Rejected)
    assert refused.retry_after_s == pytest.approx(3 * 3.0)


def test_queue_token_cap() -> None:
    life = Life(max_queue_tokens=10)
    assert isinstance(life.submit("alone", 12), ev.Admitted)
    assert "13" in life.refused("more", 1).message


def test_cancel_frees_everything_in_one_call() -> None:
    life = Life()
    life.submit("prefill", 40)
    life.step()
    life.submit("queued", 40)
    for name in ("prefill", "queued"):
        events = life.scheduler.cancel(RequestId(name), life.now, "client_disconnected")
        assert events == (ev.Cancelled(RequestId(name), "client_disconnected"),)
        life.scheduler.check()
    seen = life.scheduler.statistics()
    assert (seen.num_free_blocks, seen.num_running, seen.num_waiting) == (16, 0, 0)
    assert life.scheduler.cancel(RequestId("prefill"), life.now, "again") == ()


def test_result_for_a_cancelled_request_is_ignored() -> None:
    """B05: the cancellation lands between launch and commit of the last chunk."""
    life = Life()
    life.submit("a", 10)
    plan = life.plan()
    assert plan.slices[0].sample
    life.scheduler.cancel(RequestId("a"), life.now, "gone")
    assert life.answer(plan) == ()
    assert life.scheduler.statistics().num_free_blocks == 16


def test_a_failure_takes_no_other_request_with_it() -> None:
    life = Life()
    life.submit("good", 4, max_tokens=1)
    life.submit("bad", 4)
    plan = life.plan()
    events = life.answer(plan, failures={plan.slices[1].sequence_id: "not finite"})
    assert ev.Failed(RequestId("bad"), "not finite") in events
    assert ev.Finished(RequestId("good")) in events


def test_a_missing_token_fails_the_request_instead_of_hanging_it() -> None:
    life = Life()
    life.submit("a", 4)
    plan = life.plan()
    events = life.scheduler.apply(StepResult(plan.step_id, {}), life.now)
    assert [type(e) for e in events] == [ev.Failed]


def test_stop_token_ends_a_sequence_after_min_tokens() -> None:
    life = Life(token=9)
    life.submit("a", 2, max_tokens=8, stop_token_ids=(9,), min_tokens=2)
    life.run_dry()
    assert life.seen(ev.SequenceFinished) == [
        ev.SequenceFinished(RequestId("a"), 0, ev.FinishReason.STOP, 9)
    ]


def test_stop_string_ends_one_sequence_of_several() -> None:
    life = Life()
    life.submit("a", 2, max_tokens=2, n=2)
    life.step()
    events = life.scheduler.stop(RequestId("a"), 1, life.now)
    assert events == (ev.SequenceFinished(RequestId("a"), 1, ev.FinishReason.STOP),)
    events = life.answer(life.plan())
    assert events[-2:] == (
        ev.SequenceFinished(RequestId("a"), 0, ev.FinishReason.LENGTH),
        ev.Finished(RequestId("a")),
    )


def test_prompt_only_request_ends_when_its_prompt_is_computed() -> None:
    life = Life(max_num_batched_tokens=4)
    life.submit("a", 6, max_tokens=0)
    plan = life.plan()
    assert not plan.slices[0].sample
    life.answer(plan)
    events = life.answer(life.plan())
    assert events == (
        ev.SequenceFinished(RequestId("a"), 0, ev.FinishReason.LENGTH),
        ev.Finished(RequestId("a")),
    )


def test_prompt_log_probabilities_are_reported_once_despite_recomputation() -> None:
    life = Life(num_blocks=4, max_num_batched_tokens=4, max_num_seqs=2)
    life.submit("old", 8, max_tokens=8)
    life.submit("new", 4, max_tokens=4)
    seen: list[int] = []
    while not isinstance(plan := life.schedule(), Idle):
        scored = {
            p.sequence_id: PromptLogprobs(
                p.start + 1, tuple(TokenLogprobs(i, -1.0) for i in range(p.start + 1, p.start + 5))
            )
            for p in plan.slices
            if p.sequence_id == 1 and p.start < 4
        }
        for event in life.answer(plan, prompt_logprobs=scored):
            if isinstance(event, ev.PromptScored):
                seen += [entry.token_id for entry in event.logprobs.entries]
    assert life.scheduler.statistics().num_preemptions > 0
    assert len(seen) == len(set(seen))


def test_idle_names_the_next_deadline() -> None:
    life = Life(max_num_seqs=1)
    assert life.scheduler.schedule(0.0) == Idle(None)
    life.submit("running", 2, request_timeout_s=30.0)
    life.submit("queued", 2, queue_timeout_s=5.0)
    life.now = 1.0
    life.step()
    life.now = 5.0
    plan = life.plan()
    assert plan.events == (ev.Expired(RequestId("queued"), ev.ExpireReason.QUEUE_TIMEOUT, 5.0),)
    life.answer(plan)
    life.now = 30.0
    idle = life.idle()
    assert idle.events == (ev.Expired(RequestId("running"), ev.ExpireReason.REQUEST_TIMEOUT, 30.0),)
    assert life.scheduler.statistics().num_free_blocks == 16


def test_two_plans_in_flight_decode_before_the_token_is_known() -> None:
    life = Life(max_plans_in_flight=2)
    life.submit("a", 4, max_tokens=3)
    first, second = life.plan(), life.plan()
    assert (second.slices[0].start, second.slices[0].count) == (4, 1)
    with pytest.raises(InvariantError, match="in flight"):
        life.scheduler.schedule(life.now)
    with pytest.raises(InvariantError, match="expected"):
        life.scheduler.apply(StepResult(second.step_id, {}), life.now)
    life.answer(first)
    third = life.plan()
    life.answer(second)
    assert isinstance(life.scheduler.schedule(life.now), Idle), "max_tokens is not overshot"
    assert life.answer(third)[-1] == ev.Finished(RequestId("a"))


def test_duplicate_live_id_is_refused_and_harms_nobody() -> None:
    """B58."""
    life = Life()
    life.submit("a", 4)
    assert life.refused("a", 4).reason is ev.RejectReason.DUPLICATE
    life.run_dry()
    assert life.scheduler.statistics().num_finished == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"num_blocks": 0},
        {"max_num_batched_tokens": 3},
        {"max_prefill_chunk_tokens": 0},
        {"enable_chunked_prefill": False},
        {"max_plans_in_flight": 3},
    ],
)
def test_contradicting_limits_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|may"):
        limits(**changes)


def test_no_free_slot_counts_while_the_head_of_the_queue_waits_for_blocks() -> None:
    life = Life(num_blocks=8, max_num_seqs=4, max_queue_requests=1)
    life.submit("running", 20, max_tokens=12)
    life.step()
    assert isinstance(life.submit("head", 20), ev.Admitted)
    assert isinstance(life.submit("next", 20), ev.Rejected)


def test_all_sequences_of_a_request_count_in_the_queue() -> None:
    life = Life(max_num_seqs=1, max_queue_requests=4, max_queue_tokens=50)
    assert isinstance(life.submit("many", 10, n=5), ev.Admitted)
    life.step()
    seen = life.scheduler.statistics()
    assert (seen.num_waiting, seen.num_waiting_sequences, seen.num_waiting_tokens) == (0, 4, 40)
    assert isinstance(life.submit("late", 1), ev.Rejected)


def test_ended_requests_with_deadlines_are_not_kept() -> None:
    life = Life()
    life.submit("long", 2, max_tokens=60, request_timeout_s=1e6)
    for number in range(1000):
        life.submit(f"r{number}", 2, max_tokens=1, request_timeout_s=1e6, queue_timeout_s=1e6)
        life.scheduler.cancel(RequestId(f"r{number}"), life.now, "gone")
    assert len(life.scheduler._deadlines._heap) < 100


def test_a_sequence_that_was_stopped_in_flight_leaves_the_counts_right() -> None:
    life = Life()
    life.submit("a", 2, n=2)
    plan = life.plan()
    life.scheduler.stop(RequestId("a"), 0, life.now)
    life.scheduler.check()
    life.answer(plan)


def test_a_stop_for_a_sequence_that_never_was_is_a_bug() -> None:
    life = Life()
    life.submit("a", 2)
    with pytest.raises(InvariantError, match="no sequence 5"):
        life.scheduler.stop(RequestId("a"), 5, life.now)
    assert life.scheduler.stop(RequestId("b"), 5, life.now) == ()
