"""Decisions of the scheduler, one by one, on small pools."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core import events as ev
from headway.core.limits import SchedulerLimits
from headway.core.plan import (
    Idle,
    PromptLogprobs,
    RequestId,
    SampledToken,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.errors import InvariantError


def limits(**changes: Any) -> SchedulerLimits:
    values: dict[str, Any] = {
        "num_blocks": 16,
        "block_size": 4,
        "max_model_len": 64,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        **changes,
    }
    return SchedulerLimits(**values)


def request(name: str, num_prompt: int, max_tokens: int = 4, **changes: Any) -> Request:
    sampling = {k: changes.pop(k) for k in ("stop_token_ids", "min_tokens") if k in changes}
    return Request(
        request_id=RequestId(name),
        prompt_token_ids=tuple(range(100, 100 + num_prompt)),
        sampling=SamplingParams(max_tokens=max_tokens, **sampling),
        **changes,
    )


class Life:
    """A scheduler and the loop around it; every sampled token is ``token``."""

    def __init__(self, token: int = 1, **changes: Any) -> None:
        self.scheduler = Scheduler(limits(**changes))
        self.token = token
        self.now = 0.0

    def submit(self, *args: Any, **changes: Any) -> ev.Admitted | ev.Rejected:
        return self.scheduler.submit(request(*args, **changes), self.now)

    def plan(self) -> StepPlan:
        plan = self.scheduler.schedule(self.now)
        assert isinstance(plan, StepPlan), plan
        return plan

    def answer(self, plan: StepPlan, **fields: Any) -> tuple[ev.Event, ...]:
        tokens = {p.sequence_id: SampledToken(self.token) for p in plan.slices if p.sample}
        events = self.scheduler.apply(StepResult(plan.step_id, tokens, **fields), self.now)
        self.scheduler.check()
        return events

    def step(self) -> tuple[tuple[int, int, int], ...]:
        plan = self.plan()
        self.answer(plan)
        return tuple((p.sequence_id, p.start, p.count) for p in plan.slices)

    def run_dry(self) -> int:
        for number in range(10_000):
            plan = self.scheduler.schedule(self.now)
            if isinstance(plan, Idle):
                return number
            self.answer(plan)
        raise AssertionError("no end")


def test_decodes_come_before_prefill_chunks() -> None:
    life = Life()
    life.submit("short", 4)
    assert life.step() == ((0, 0, 4),)
    life.submit("long", 40)
    assert life.step() == ((0, 4, 1), (1, 0, 15))
    assert life.step() == ((0, 5, 1), (1, 15, 15))


def test_chunk_limit_bounds_each_slice() -> None:
    life = Life(max_prefill_chunk_tokens=5)
    life.submit("a", 12)
    life.submit("b", 12)
    assert life.step() == ((0, 0, 5), (1, 0, 5))
    assert life.step() == ((0, 5, 5), (1, 5, 5))
    assert life.step() == ((0, 10, 2), (1, 10, 2))


def test_without_chunking_a_prompt_is_computed_whole_or_not_yet() -> None:
    life = Life(enable_chunked_prefill=False, max_num_batched_tokens=70, num_blocks=32)
    life.submit("a", 40)
    life.submit("b", 20)
    life.submit("c", 20)
    assert life.step() == ((0, 0, 40), (1, 0, 20))
    assert life.step() == ((0, 40, 1), (1, 20, 1), (2, 0, 20))


def test_newest_is_preempted_and_resumes_at_its_place() -> None:
    life = Life(num_blocks=4, max_num_batched_tokens=8)
    life.submit("old", 4, max_tokens=10)
    life.submit("new", 4, max_tokens=10)
    for _ in range(5):
        life.step()
    plan = life.plan()
    assert [type(e).__name__ for e in plan.events] == ["Preempted"]
    assert plan.events[0] == ev.Preempted(RequestId("new"), 0, 8)
    assert [p.sequence_id for p in plan.slices] == [0]
    life.answer(plan)
    life.submit("newer", 1, max_tokens=1)
    life.run_dry()
    seen = life.scheduler.statistics()
    assert (seen.num_preemptions, seen.num_resumed, seen.num_finished) == (1, 1, 3)


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
    lost = 0
    while not isinstance(plan := life.scheduler.schedule(life.now), Idle):
        lost += sum(e.num_lost_tokens for e in plan.events if isinstance(e, ev.Preempted))
        life.answer(plan)
    assert life.scheduler.statistics().num_finished == 2
    assert lost < 2 * 24


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
    answer = life.submit("big", num_prompt, max_tokens=max_tokens)
    assert isinstance(answer, ev.Rejected)
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
    refused = life.submit("more", 1)
    assert isinstance(refused, ev.Rejected)
    assert "13" in refused.message


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
    ends = []
    for _ in range(3):
        ends += [e for e in life.answer(life.plan()) if isinstance(e, ev.SequenceFinished)]
    assert ends == [ev.SequenceFinished(RequestId("a"), 0, ev.FinishReason.STOP, 9)]


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
    while not isinstance(plan := life.scheduler.schedule(life.now), Idle):
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
    plan = life.plan()
    life.submit("queued", 2, queue_timeout_s=5.0)
    life.scheduler.apply(StepResult(plan.step_id, {0: SampledToken(1)}), 1.0)  # type: ignore[dict-item]
    life.now = 5.0
    plan = life.plan()
    assert plan.events == (ev.Expired(RequestId("queued"), ev.ExpireReason.QUEUE_TIMEOUT, 5.0),)
    life.answer(plan)
    life.now = 30.0
    idle = life.scheduler.schedule(life.now)
    assert isinstance(idle, Idle)
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
    refused = life.submit("a", 4)
    assert isinstance(refused, ev.Rejected)
    assert refused.reason is ev.RejectReason.DUPLICATE
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
