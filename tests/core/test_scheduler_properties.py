"""Random lives of a scheduler: submissions, cancellations, results, failures, tiny pools.

``check()`` runs after every move, and the events of each request are held against its life.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headway.core import events as ev
from headway.core.limits import SchedulerLimits
from headway.core.plan import Idle, RequestId, SampledToken, SequenceId, StepPlan, StepResult
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler

STOP_TOKEN = 7


class ExecutorModel:
    """What an executor would know: it checks that each plan can be carried out."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.num_tokens: dict[SequenceId, int] = {}
        self.tables: dict[SequenceId, list[int]] = {}
        self.computed: dict[SequenceId, int] = {}

    def take(self, plan: StepPlan) -> None:
        for sequence_id in plan.released:
            del self.num_tokens[sequence_id], self.tables[sequence_id], self.computed[sequence_id]
        for new in plan.new_sequences:
            assert new.sequence_id not in self.num_tokens
            self.num_tokens[new.sequence_id] = len(new.prompt_token_ids)
            self.tables[new.sequence_id] = []
            self.computed[new.sequence_id] = 0
        for update in plan.table_updates:
            table = self.tables[update.sequence_id]
            assert update.first_index <= len(table)
            table[update.first_index :] = update.block_ids
            if update.first_index == 0:
                self.computed[update.sequence_id] = 0
        self.take_slices(plan)

    def take_slices(self, plan: StepPlan) -> None:
        assert sum(part.count for part in plan.slices) <= self.limits.max_num_batched_tokens
        assert 0 < len(plan.slices) <= self.limits.max_num_seqs
        written: set[int] = set()
        for part in plan.slices:
            end = part.start + part.count
            assert part.count > 0
            assert part.start == self.computed[part.sequence_id], "a position was left out"
            assert end <= self.num_tokens[part.sequence_id], "a token that does not exist yet"
            assert part.sample <= (end == self.num_tokens[part.sequence_id])
            table = self.tables[part.sequence_id]
            assert end <= len(table) * self.limits.block_size
            size = self.limits.block_size
            blocks = {table[p // size] for p in range(part.start, end)}
            assert not blocks & written, "two sequences write one block"
            written |= blocks
            self.computed[part.sequence_id] = end
            self.num_tokens[part.sequence_id] += part.sample


class SchedulerLife(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(1, 12),
        block_size=st.integers(1, 4),
        max_num_seqs=st.integers(1, 5),
        extra_budget=st.integers(0, 12),
        chunk=st.none() | st.integers(1, 6),
        is_chunked=st.booleans(),
        queue=st.none() | st.integers(0, 4),
        queue_tokens=st.none() | st.integers(1, 20),
        watermark=st.integers(0, 2),
        depth=st.integers(1, 2),
    )
    def make(
        self,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        extra_budget: int,
        chunk: int | None,
        is_chunked: bool,
        queue: int | None,
        queue_tokens: int | None,
        watermark: int,
        depth: int,
    ) -> None:
        max_model_len = 24
        longest = min(max_model_len, num_blocks * block_size + 1)
        budget = max_num_seqs + extra_budget + (0 if is_chunked else longest)
        self.limits = SchedulerLimits(
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_prefill_chunk_tokens=chunk if is_chunked else None,
            enable_chunked_prefill=is_chunked,
            max_queue_requests=queue,
            max_queue_tokens=queue_tokens,
            watermark_blocks=watermark,
            max_plans_in_flight=depth,
        )
        self.scheduler = Scheduler(self.limits)
        self.executor = ExecutorModel(self.limits)
        self.now = 0.0
        self.num_requests = 0
        self.in_flight: list[StepPlan] = []
        self.requests: dict[RequestId, Request] = {}
        self.outputs: dict[tuple[RequestId, int], list[int]] = {}
        self.ended_sequences: dict[tuple[RequestId, int], ev.FinishReason] = {}
        self.terminal: dict[RequestId, ev.Event] = {}
        self.sequences: dict[SequenceId, tuple[RequestId, int]] = {}

    def see(self, events: tuple[ev.Event, ...]) -> None:
        for event in events:
            request_id = event.request_id
            assert request_id not in self.terminal, f"{event} after {self.terminal[request_id]}"
            if isinstance(event, ev.TokenReady):
                key = (request_id, event.index)
                assert key not in self.ended_sequences
                self.outputs.setdefault(key, []).append(event.token.token_id)
            if isinstance(event, ev.SequenceFinished):
                self.see_sequence_end(event)
            if isinstance(event, ev.TERMINAL):
                self.terminal[request_id] = event
            if isinstance(event, ev.Finished):
                for index in range(self.requests[request_id].n):
                    assert (request_id, index) in self.ended_sequences

    def see_sequence_end(self, event: ev.SequenceFinished) -> None:
        key = (event.request_id, event.index)
        assert key not in self.ended_sequences
        self.ended_sequences[key] = event.reason
        outputs = self.outputs.get(key, [])
        sampling = self.requests[event.request_id].sampling
        if event.reason is ev.FinishReason.LENGTH:
            assert len(outputs) == sampling.max_tokens
        if event.stop_token_id is not None:
            assert outputs[-1] == event.stop_token_id
            assert len(outputs) > sampling.min_tokens

    @rule(
        prompt=st.integers(0, 26),
        max_tokens=st.integers(0, 10),
        min_tokens=st.integers(0, 2),
        n=st.integers(1, 3),
        queue_timeout=st.none() | st.integers(0, 5),
        request_timeout=st.none() | st.integers(0, 20),
    )
    def submit(
        self,
        prompt: int,
        max_tokens: int,
        min_tokens: int,
        n: int,
        queue_timeout: int | None,
        request_timeout: int | None,
    ) -> None:
        request = Request(
            request_id=RequestId(f"r{self.num_requests}"),
            prompt_token_ids=tuple(range(prompt)),
            sampling=SamplingParams(
                max_tokens=max_tokens, min_tokens=min_tokens, stop_token_ids=(STOP_TOKEN,)
            ),
            n=n,
            queue_timeout_s=queue_timeout,
            request_timeout_s=request_timeout,
        )
        self.num_requests += 1
        self.requests[request.request_id] = request
        answer = self.scheduler.submit(request, self.now)
        if isinstance(answer, ev.Rejected):
            assert answer.message
            self.see((answer,))
            return
        assert len(answer.sequence_ids) == n
        assert prompt + max(max_tokens - 1, 0) <= self.limits.num_kv_tokens
        for index, sequence_id in enumerate(answer.sequence_ids):
            self.sequences[sequence_id] = (request.request_id, index)

    @precondition(lambda self: self.num_requests > 0)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.num_requests))
        request_id = RequestId(f"r{number}")
        was_live = request_id in self.requests and request_id not in self.terminal
        events = self.scheduler.cancel(request_id, self.now, "gone")
        assert was_live == bool(events)
        self.see(events)

    @precondition(lambda self: self.num_requests > 0)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.num_requests - 1))
        request = self.requests[RequestId(f"r{number}")]
        index = data.draw(st.integers(0, request.n - 1))
        self.see(self.scheduler.stop(request.request_id, index, self.now))

    @rule(seconds=st.integers(0, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @precondition(lambda self: len(self.in_flight) < self.limits.max_plans_in_flight)
    @rule()
    def schedule(self) -> None:
        plan = self.scheduler.schedule(self.now)
        self.see(plan.events)
        if isinstance(plan, Idle):
            assert plan.until is None or plan.until > self.now
            if not self.in_flight:
                seen = self.scheduler.statistics()
                assert seen.num_live == 0, "work, nothing in flight, and no plan: a deadlock"
            return
        self.executor.take(plan)
        self.in_flight.append(plan)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        plan = self.in_flight.pop(0)
        sampled = [part.sequence_id for part in plan.slices if part.sample]
        tokens = {
            sequence_id: SampledToken(data.draw(st.sampled_from([1, 2, 3, 4, 5, 6, STOP_TOKEN])))
            for sequence_id in sampled
        }
        failures: dict[SequenceId, str] = {}
        if data.draw(st.integers(0, 9)) == 0:
            part = data.draw(st.sampled_from(plan.slices))
            tokens.pop(part.sequence_id, None)
            failures[part.sequence_id] = "broken"
        before = dict(self.terminal)
        self.see(self.scheduler.apply(StepResult(plan.step_id, tokens, failures), self.now))
        failed = {self.sequences[s][0] for s in failures} - before.keys()
        for request_id in self.terminal.keys() - before.keys():
            if isinstance(self.terminal[request_id], ev.Failed):
                assert request_id in failed, "a failure took another request with it"

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.check()
            live = self.requests.keys() - self.terminal.keys()
            assert self.scheduler.statistics().num_live == len(live)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.run_dry()
        self.scheduler.check()
        assert self.terminal.keys() == self.requests.keys(), "a request never ended"
        seen = self.scheduler.statistics()
        assert seen.num_free_blocks == seen.num_blocks
        assert seen.num_live == seen.num_running == seen.num_waiting == seen.num_preempted == 0

    def run_dry(self) -> None:
        """Whatever was admitted must end in a bounded number of steps, whoever preempts whom."""
        for _ in range(4000):
            if not self.in_flight:
                plan = self.scheduler.schedule(self.now)
                self.see(plan.events)
                if isinstance(plan, Idle):
                    return
                self.executor.take(plan)
                self.in_flight.append(plan)
            plan = self.in_flight.pop(0)
            tokens = {p.sequence_id: SampledToken(1) for p in plan.slices if p.sample}
            self.see(self.scheduler.apply(StepResult(plan.step_id, tokens), self.now))
            self.scheduler.check()
        pytest.fail("the scheduler does not come to an end")


SchedulerLife.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSchedulerLife = SchedulerLife.TestCase
