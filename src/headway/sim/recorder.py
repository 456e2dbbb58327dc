"""Writes down what happens: it listens to the engine's events and looks at the plans it runs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.core.events import (
    Cancelled,
    Event,
    Expired,
    Failed,
    Finished,
    Preempted,
    Rejected,
    Started,
    TokenReady,
)
from headway.core.lockstep import CaughtUp
from headway.core.plan import RequestId, SequenceId, StepPlan, StepResult
from headway.core.repeat import Repeatable
from headway.core.request import Request
from headway.executors.simulated import SimulatedExecutor
from headway.profiles.shape import StepShape
from headway.sim.records import FINISHED, RequestRecord, Served, StepSeries


class Recorder:
    """Implements :class:`headway.engine.loop.Observer`.

    Attributes:
        records: those of the requests that were submitted.
        steps: those that were computed.
    """

    def __init__(self, record_of: Callable[[RequestId], RequestRecord]) -> None:
        """Make a recorder; ``record_of`` gives the blank record of a request that comes."""
        self._record_of = record_of
        self.records: list[RequestRecord] = []
        self.steps = StepSeries()
        self._live: dict[RequestId, RequestRecord] = {}
        self._ended: list[tuple[RequestId, float]] = []
        self._input_tokens: dict[str, int] = {}
        self._output_tokens: dict[str, int] = {}

    def served(self) -> dict[str, Served]:
        """Return what each tenant has got so far."""
        outputs = self._output_tokens
        return {
            tenant: Served(count, outputs.get(tenant, 0))
            for tenant, count in self._input_tokens.items()
        }

    def tenant_of(self, request_id: RequestId) -> str:
        """Return the tenant of a live request."""
        return self._live[request_id].arrival.tenant

    def num_tokens_of(self, request_id: RequestId) -> int | None:
        """Return how many tokens a request has got; None if it isn't live."""
        record = self._live.get(request_id)
        return None if record is None else len(record.token_times)

    def take_ended(self) -> list[tuple[RequestId, float]]:
        """Return who has ended since the last call, and when."""
        ended, self._ended = self._ended, []
        return ended

    def count_input(self, tenant: str, count: int) -> None:
        """Count prompt positions that were computed for the first time."""
        self._input_tokens[tenant] = self._input_tokens.get(tenant, 0) + count

    def on_submitted(self, request: Request, now: float) -> None:
        """Begin a record."""
        record = self._record_of(request.request_id)
        record.submitted_at = now
        self.records.append(record)
        self._live[request.request_id] = record

    def on_events(self, events: Sequence[Event], now: float) -> None:
        """Write down what happened to whom."""
        live, outputs = self._live, self._output_tokens
        for event in events:
            if type(event) is TokenReady:
                record = live[event.request_id]
                record.token_times.append(now)
                tenant = record.arrival.tenant
                outputs[tenant] = outputs.get(tenant, 0) + 1
            else:
                self._on_event(event, now)

    def on_caught_up(self, caught_up: Sequence[CaughtUp], ended_s: array[float]) -> None:
        """Write down that each of these requests got tokens at the ends of some of the steps."""
        live, outputs = self._live, self._output_tokens
        for request_id, first, end in caught_up:
            record = live[request_id]
            record.token_times.extend(ended_s[first:end])
            tenant = record.arrival.tenant
            outputs[tenant] = outputs.get(tenant, 0) + end - first

    def on_step(self, num_sequences: int, num_tokens: int, elapsed_s: float) -> None:
        """Nothing: :class:`RecordingExecutor` sees more of a step."""

    def _on_event(self, event: Event, now: float) -> None:
        record = self._live[event.request_id]
        if isinstance(event, Started):
            record.started_at = now
            record.num_passed = event.num_passed
            record.num_cached_tokens = event.num_cached_tokens
        elif isinstance(event, Preempted):
            record.num_preemptions += 1
        elif isinstance(event, Finished):
            self._end(event.request_id, now, FINISHED, "")
        elif isinstance(event, Rejected):
            record.detail = event.message
            self._end(event.request_id, now, "rejected", event.reason)
        elif isinstance(event, Expired):
            self._end(event.request_id, now, "expired", event.reason)
        elif isinstance(event, Failed):
            self._end(event.request_id, now, "failed", event.message)
        elif isinstance(event, Cancelled):
            self._end(event.request_id, now, "cancelled", event.reason)

    def _end(self, request_id: RequestId, now: float, outcome: str, reason: str) -> None:
        record = self._live.pop(request_id)
        record.outcome, record.reason, record.ended_at = outcome, reason, now
        self._ended.append((request_id, now))


class RepeatedTimes(NamedTuple):
    """When the device began each of several steps, when each ended, and how long it took."""

    began_s: array[float]
    ended_s: array[float]
    elapsed_s: array[float]


class RecordingExecutor:
    """Runs plans by another executor and tells a recorder what they were."""

    def __init__(
        self, inner: SimulatedExecutor, recorder: Recorder, now: Callable[[], float]
    ) -> None:
        self._inner = inner
        self._recorder = recorder
        self._now = now
        self._prompts: dict[SequenceId, _Prompt] = {}

    def run(
        self, plan: StepPlan, shape: StepShape | None = None, num_lockstep: int = 0
    ) -> StepResult:
        """Run the plan and record it.

        With ``shape``, that of the whole step, so many decodes are in it beside the plan's slices.
        """
        began_at = self._now()
        result = self._inner.run(plan, shape)
        self._forget(plan.released)
        for new in plan.new_sequences:
            tenant = self._recorder.tenant_of(new.request_id)
            self._prompts[new.sequence_id] = _Prompt(tenant, len(new.prompt_token_ids))
        num_prefill_tokens = self._count(plan)
        steps = self._recorder.steps
        steps.began_at.append(began_at)
        steps.elapsed_s.append(result.elapsed_s)
        steps.num_sequences.append(len(plan.slices) + num_lockstep)
        steps.num_tokens.append(sum([part.count for part in plan.slices]) + num_lockstep)
        steps.num_prefill_tokens.append(num_prefill_tokens)
        return result

    def events(self, events: tuple[Event, ...], now: float) -> None:
        """Record what happened."""
        if events:
            self._recorder.on_events(events, now)

    def caught_up(self, caught_up: Sequence[CaughtUp], ended_s: array[float]) -> None:
        """Record what sequences got while they were in lockstep."""
        self._recorder.on_caught_up(caught_up, ended_s)

    def repeated(
        self,
        steps: Repeatable,
        num_sequences: int,
        times: RepeatedTimes,
        events: tuple[Event, ...],
    ) -> None:
        """Record steps of so many sequences, and what happened in the last of them."""
        self._forget(steps.released)
        self.events(events, times.ended_s[-1])
        series, num_steps = self._recorder.steps, len(times.ended_s)
        numbers = array("q", (num_sequences,)) * num_steps
        series.began_at.extend(times.began_s)
        series.elapsed_s.extend(times.elapsed_s)
        series.num_sequences.extend(numbers)
        series.num_tokens.extend(numbers)
        series.num_prefill_tokens.extend(array("q", (0,)) * num_steps)

    def _forget(self, released: Sequence[SequenceId]) -> None:
        for sequence_id in released:
            self._prompts.pop(sequence_id, None)

    def _count(self, plan: StepPlan) -> int:
        """Count the prompt positions that are new; return the positions that are prefilled."""
        prompts, num_prefill_tokens = self._prompts, 0
        for sequence_id, start, count, _ in plan.slices:
            if count > 1:
                num_prefill_tokens += count
            if sequence_id in prompts:
                prompt = prompts[sequence_id]
                self._recorder.count_input(prompt.tenant, prompt.advance(start, start + count))
                if prompt.is_done:
                    del prompts[sequence_id]
        return num_prefill_tokens


class _Prompt:
    """A prompt that isn't computed to its end."""

    __slots__ = ("length", "num_done", "tenant")

    def __init__(self, tenant: str, length: int) -> None:
        self.tenant = tenant
        self.length = length
        self.num_done = 0

    @property
    def is_done(self) -> bool:
        return self.num_done >= self.length

    def advance(self, start: int, end: int) -> int:
        """Take in computed positions and return how many were not computed before."""
        end = min(end, self.length)
        num_new = max(end - max(start, self.num_done), 0)
        self.num_done = max(self.num_done, end)
        return num_new
