"""A scheduler and a symbolic executor, driven from outside, with all that must hold between them.

Each method of :class:`Life` is one move. It hands the events to a ``Witness``, which knows what may
follow what, and what each sequence must say.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, deque
from collections.abc import Callable

from scheduler_witness import EPSILON, Seen, Witness

from headway.core import events as ev
from headway.core.classes import PolicyName, ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.limits import Batching
from headway.core.plan import (
    Idle,
    RequestId,
    SequenceId,
    StepPlan,
    StepResult,
)
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.scheduler import Scheduler
from headway.testing.symbolic import LostStepError, SymbolicExecutor
from headway.testing.symbols import Draws


class BrokenStepError(Exception):
    """A whole step failed, on purpose."""


class Life:
    """A scheduler with its executor; each method is one move, after which all is checked."""

    def __init__(self, config: SchedulerConfig, draws: Draws | None = None) -> None:
        self.config = config
        self.limits = config.limits
        self.scheduler = Scheduler(config)
        draws = draws or Draws()
        self.witness = Witness(config, draws)
        self.executor = SymbolicExecutor(self.limits, draws, self._salt)
        self.now = 0.0
        self.executor.note_applied(-1)
        self.num_moves = 0
        self.in_flight: deque[tuple[StepPlan, StepResult]] = deque()
        self.batch: set[SequenceId] = set()
        self.sampled: set[SequenceId] = set()  # by the latest plan
        #: shown each plan
        self.on_plan: Callable[[StepPlan | Idle], object] | None = None

    def _salt(self, request_id: RequestId) -> str:
        return self.witness.requests[request_id].request.cache_salt

    @property
    def can_schedule(self) -> bool:
        return len(self.in_flight) < self.limits.max_plans_in_flight

    # ---------------------------------------------------------------- moves

    def submit(self, request: Request) -> bool:
        """Submit a request; whether it was admitted."""
        answered = self.scheduler.submit(request, self.now)
        self.witness.submitted(request, self.now, answered)
        self.check()
        return isinstance(answered, ev.Admitted)

    def submit_in_vain(self, request: Request, reason: ev.RejectReason) -> None:
        """Submit what must be refused for this reason, and changes nothing."""
        answered = self.scheduler.submit(request, self.now)
        assert isinstance(answered, ev.Rejected)
        assert answered.reason is reason
        assert answered.message
        self.check()

    def cancel(self, request_id: RequestId) -> None:
        seen = self.witness.requests.get(request_id)
        was_live = seen is not None and seen.terminal is None
        events = self.scheduler.cancel(request_id, self.now, "gone")
        self.witness.see(events, self.now)
        if was_live:
            assert seen is not None
            assert isinstance(seen.terminal, ev.Cancelled)
        else:
            assert not events
        self.check()

    def stop(self, request_id: RequestId, index: int) -> None:
        self.witness.see(self.scheduler.stop(request_id, index, self.now), self.now)
        self.check()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.num_moves += 1

    def schedule(self, chance: random.Random | None = None, failures: float = 0.0) -> bool:
        """Plan a step and compute it; whether there was one. Some steps fail, by chance."""
        running = self.witness.running_ids()
        plan = self.scheduler.schedule(self.now)
        if self.on_plan is not None:
            self.on_plan(plan)
        self.witness.see(plan.events, self.now)
        self._nothing_is_overdue()
        self._reserved_work_runs()
        self._oldest_goes_on(plan, running)
        self._nobody_gives_way_in_vain(plan)
        self._few_overtake(plan)
        if isinstance(plan, Idle):
            self.executor.see(plan.events)
            self._may_be_idle(plan)
            self.check()
            return False
        self._static_batch_is_closed(plan)
        self._decodes_come_first(plan)
        self._starts_where_it_was_said(plan)
        self._keeps_token_shares(plan)
        self.in_flight.append(self._run(plan, chance, failures))
        self._keeps_shares()
        self.check()
        return True

    def apply(self, elapsed_s: float = 0.0) -> None:
        """Hand the oldest result in flight to the scheduler."""
        plan, result = self.in_flight.popleft()
        self.executor.note_applied(plan.step_id)
        result = dataclasses.replace(result, elapsed_s=elapsed_s)
        self.witness.see(self.scheduler.apply(result, self.now), self.now)
        self.check()

    def run_dry(self) -> None:
        """Whatever was admitted must end, leave nothing behind, and nobody is harmed for ever."""
        self._run_to_the_end()
        self._is_empty()
        last = RequestId("the last one")
        sampling = SamplingParams(max_tokens=1)
        name = self.config.classes[0].name
        assert self.submit(
            Request(request_id=last, prompt_token_ids=(1,), sampling=sampling, class_name=name)
        )
        self._run_to_the_end()
        assert isinstance(self.witness.requests[last].terminal, ev.Finished)
        assert len(self.executor) == 1, "the executor was not told to forget all the others"

    def _run_to_the_end(self) -> None:
        """In a bounded number of steps, whoever preempts whom."""
        for _ in range(self._most_steps()):
            if self.in_flight:
                self.apply(0.01)
                continue
            was_step = self.schedule()
            self.now += 0.01
            if not was_step:
                if not self.witness.live():
                    return
                self.now = max(self.now, self._until)
        raise AssertionError("the scheduler does not come to an end")

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        self.num_moves += 1
        self.scheduler.check()
        seen, live = self.scheduler.statistics(), self.witness.live()
        assert seen.num_live == len(live)
        states = Counter(line.state for each in live for line in each.lines)
        assert seen.num_running == states["running"]
        assert seen.num_preempted == states["preempted"]
        assert seen.num_waiting_sequences == states["waiting"]
        assert seen.num_waiting == sum(not each.has_run for each in live)

    def _run(
        self, plan: StepPlan, chance: random.Random | None, failures: float
    ) -> tuple[StepPlan, StepResult]:
        is_forgotten = False
        if plan.swap_out or plan.copies or plan.swap_in:
            failures *= 4
        if chance is not None and chance.random() < failures:
            part, dice = chance.choice(plan.slices), chance.random()
            if dice < 0.3 or plan.swap_out:
                self.executor.fail_next_step(
                    BrokenStepError("broken"), at_once=chance.random() < 0.5
                )
            elif dice < 0.9 or not part.sample:
                self.executor.fail_sequence(part.sequence_id, "broken")
            else:
                is_forgotten = True
        try:
            result = self.executor.run(plan)
        except (BrokenStepError, LostStepError) as error:
            broken = {part.sequence_id: str(error) for part in plan.slices}
            result = StepResult(plan.step_id, {}, broken, is_lost=True)
        self.witness.failed_ids.update(result.failures)
        if result.is_lost:
            return plan, result
        if is_forgotten:
            self.witness.failed_ids.add(part.sequence_id)
            tokens = {each: token for each, token in result.tokens.items() if each != part[0]}
            result = dataclasses.replace(result, tokens=tokens)
        return plan, result

    def _may_be_idle(self, plan: Idle) -> None:
        """With nothing in flight, nobody waits but those who are held, and not for too long."""
        self._until = self.now if plan.until is None else plan.until
        assert plan.until is None or plan.until > self.now
        if self.in_flight:
            return
        for seen in self.witness.live():
            for line in seen.lines:
                if line.state == "ended":
                    continue
                assert line.state == "waiting", f"a {line.state} sequence is left alone"
                hold_end = seen.submitted_at + self.witness.hold(seen)
                assert hold_end > self.now, f"{seen.request.request_id} waits for nothing"
                assert plan.until is not None
                assert plan.until <= hold_end + EPSILON, "the hold outlives its bound"

    def _nothing_is_overdue(self) -> None:
        for seen in self.witness.live():
            waited = self.now - seen.submitted_at
            assert waited < self.witness.timeout(seen, ev.ExpireReason.REQUEST_TIMEOUT)
            if not seen.has_run:
                assert waited < self.witness.timeout(seen, ev.ExpireReason.QUEUE_TIMEOUT)

    def _reserved_work_runs(self) -> None:
        """Work of a class that never queues runs in the step after it came."""
        waiting = [
            seen.request.request_id
            for seen in self.witness.live()
            if seen.service is not None
            and seen.service.reserved_slots
            and seen.lines[0].state == "waiting"
        ]
        assert not waiting, f"reserved work waits: {waiting}"

    def _oldest_goes_on(self, plan: StepPlan | Idle, running: list[SequenceId]) -> None:
        """First come, first served: who came first gives way to none but who may not."""
        if (
            self.config.policy.name is not PolicyName.FCFS
            or self.config.classes != (ServiceClass(),)
            or self.limits.max_passes
        ):
            return
        left = set(running).intersection(self.witness.running_ids())
        for event in plan.events:
            if isinstance(event, ev.Preempted):
                line = self.witness.requests[event.request_id].lines[event.index]
                if line.sequence_id == min(running):
                    num_preemptions = [each.num_preemptions for each in self.witness.lines(left)]
                    least = min(num_preemptions, default=self.limits.max_preemptions)
                    assert least == self.limits.max_preemptions, "the oldest gave way"

    def _nobody_gives_way_in_vain(self, plan: StepPlan | Idle) -> None:
        """Who is preempted for somebody that waits makes it start, in this very step."""
        events = plan.events
        for place, event in enumerate(events):
            if isinstance(event, ev.Preempted) and event.cause is not ev.PreemptionCause.BLOCKS:
                newcomers = [
                    each
                    for each in events[place:]
                    if isinstance(each, ev.Started | ev.Resumed)
                    and (each.request_id, each.index) != (event.request_id, event.index)
                ]
                assert newcomers, f"{event} for nobody"
                self._has_the_right(event, newcomers[0])

    def _has_the_right(self, event: ev.Preempted, newcomer: ev.Started | ev.Resumed) -> None:
        victim, other = (self.witness.requests[e.request_id] for e in (event, newcomer))
        assert victim.service is not None
        assert other.service is not None
        match event.cause:
            case ev.PreemptionCause.PRIORITY:
                threshold = self.config.policy.priority_threshold
                assert self.config.policy.name is PolicyName.PRIORITY
                assert threshold is not None
                assert other.priority + threshold <= victim.priority
            case ev.PreemptionCause.SHARE:
                assert other.service.min_running_share > 0
                assert other.service is not victim.service
            case ev.PreemptionCause.HEAD:
                assert self.limits.max_passes > 0

    def _few_overtake(self, plan: StepPlan | Idle) -> None:
        """With one class: nobody starts before who must go first, but for a bounded number.

        Who is held back by a limit on its kind of work is passed by all.
        """
        if len(self.config.classes) > 1 or self._holds_some_back():
            return
        waiting = [s for s in self.witness.live() if s.lines[0].state == "waiting"]
        for event in plan.events:
            if isinstance(event, ev.Started):
                first = self._place(self.witness.requests[event.request_id])[0]
                for seen in waiting:
                    seen.num_overtaken += first > self._place(seen)[1] + EPSILON
        for seen in waiting:
            assert seen.num_overtaken <= self.limits.max_passes, "overtaken too often"

    def _holds_some_back(self) -> bool:
        limits, (service,) = self.limits, self.config.classes
        limits_prefills = (limits.max_partial_prefills, limits.max_long_partial_prefills)
        is_bound = service.best_effort and limits.max_preemptions == 0
        return limits_prefills != (None, None) or is_bound

    def _place(self, seen: Seen) -> tuple[float, float]:
        """The earliest and the latest place that the policy can give a request, in seconds.

        With ``slo`` work that missed its target has none: it gets every fourth start.
        """
        arrived, ageing_s = seen.submitted_at, self.config.policy.ageing_s
        (service,) = self.config.classes
        match service.policy or self.config.policy.name:
            case PolicyName.FCFS:
                return arrived, arrived
            case PolicyName.PRIORITY:
                place = arrived + ageing_s * seen.priority
                return place, place
            case PolicyName.FAIR:
                return -float("inf"), float("inf")
            case PolicyName.SLO if service.ttft_target_s is not None:
                return -float("inf"), float("inf")
            case _:
                return arrived, arrived + ageing_s

    def _keeps_token_shares(self, plan: StepPlan) -> None:
        limits = self.limits
        if limits.batching is not Batching.CONTINUOUS or not limits.enable_chunked_prefill:
            return
        for service in self.config.classes:
            ids = set(self.witness.running_ids(service.name))
            num_tokens = sum(part.count for part in plan.slices if part.sequence_id in ids)
            most = max(int(service.max_running_share * limits.max_num_batched_tokens), 1)
            assert num_tokens <= most, f"{num_tokens} tokens of {service.name}, and {most} may be"

    def _starts_where_it_was_said(self, plan: StepPlan) -> None:
        starts = {part.sequence_id: part.start for part in plan.slices}
        for event in plan.events:
            if isinstance(event, ev.Started | ev.Resumed):
                if isinstance(event, ev.Started):
                    kept = event.num_cached_tokens
                else:
                    kept = event.num_kept_tokens
                line = self.witness.requests[event.request_id].lines[event.index]
                assert starts.get(line.sequence_id, kept) == kept

    def _decodes_come_first(self, plan: StepPlan) -> None:
        """Who got a token in a step gets one in the next, whoever else waits for a prefill."""
        if self.limits.batching is not Batching.CONTINUOUS:
            return
        left_out = self.sampled.intersection(self.witness.running_ids())
        left_out.difference_update(part.sequence_id for part in plan.slices)
        assert self.in_flight or not left_out, f"decoding sequences were left out: {left_out}"
        self.sampled = {part.sequence_id for part in plan.slices if part.sample}

    def _keeps_shares(self) -> None:
        limits = self.limits
        by_name = {each.name: each for each in self.scheduler.statistics().classes}
        for service in self.config.classes:
            share, num_running = service.max_running_share, self.witness.num_running[service.name]
            assert num_running <= max(int(share * limits.max_num_seqs), 1), "beyond its share"
            assert by_name[service.name].num_running == num_running
            if num_running > 1 and share < 1:
                num_blocks = len(self.executor.blocks_of(self.witness.running_ids(service.name)))
                assert num_blocks <= int(share * limits.num_blocks), "too many blocks"
        reserved = sum(each.reserved_slots for each in self.config.classes)
        others = sum(
            self.witness.num_running[each.name]
            for each in self.config.classes
            if not each.reserved_slots
        )
        assert others <= limits.max_num_seqs - reserved, "somebody took a reserved slot"

    def _static_batch_is_closed(self, plan: StepPlan) -> None:
        if self.limits.batching is not Batching.STATIC:
            return
        running = set(self.witness.running_ids())
        if self.batch & running:
            assert running <= self.batch, "somebody joined a static batch"
        else:
            self.batch = running
        assert plan.padding is not None
        assert plan.padding.num_sequences == len(self.batch), "a slot was given up too early"

    def _most_steps(self) -> int:
        """Moves in which all live sequences can be computed, one after the other."""
        limits = self.limits
        num_steps = 0
        for seen in self.witness.live():
            for line in seen.lines:
                num_tokens = len(seen.request.prompt_token_ids) + len(line.expected)
                num_steps += (1 + limits.max_preemptions) * num_tokens + 2
        return 2 * num_steps + 20

    def _is_empty(self) -> None:
        seen = self.scheduler.statistics()
        assert seen.num_free_blocks == seen.num_blocks
        assert seen.num_free_swap_blocks == seen.num_swap_blocks
        assert seen.num_live == seen.num_running == seen.num_waiting == seen.num_preempted == 0
        for each in seen.classes:
            assert each.num_waiting_sequences == each.num_running == each.num_blocks == 0
        assert not any(self.witness.num_running.values())
        assert not self.witness.live(), "a request never ended"
