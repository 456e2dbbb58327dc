"""What the clients of a scheduler see, held against what each may see."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from headway.core import events as ev
from headway.core.classes import ServiceClass
from headway.core.config import SchedulerConfig
from headway.core.limits import Batching, PreemptionChoice
from headway.core.plan import NewSequence, RequestId, SequenceId
from headway.core.request import Request
from headway.testing.symbols import Draws, answer

EPSILON = 1e-9


@dataclass(slots=True)
class Line:
    """One sequence, as its client sees it."""

    sequence_id: SequenceId
    expected: tuple[int, ...]
    state: str = "waiting"
    outputs: list[int] = field(default_factory=list)
    num_preemptions: int = 0
    num_scored: int = 1


@dataclass(slots=True)
class Seen:
    """One request, as its client sees it."""

    request: Request
    submitted_at: float
    service: ServiceClass | None
    lines: list[Line] = field(default_factory=list)
    terminal: ev.Event | None = None
    has_run: bool = False
    num_overtaken: int = 0

    @property
    def priority(self) -> int:
        assert self.service is not None
        own = self.request.priority
        return self.service.priority if own is None else own


class Witness:
    """Holds the events of each request against its life."""

    def __init__(self, config: SchedulerConfig, draws: Draws) -> None:
        self.config = config
        self.limits = config.limits
        self.draws = draws
        self.classes = {each.name: each for each in config.classes}
        self.requests: dict[RequestId, Seen] = {}
        self.failed_ids: set[SequenceId] = set()
        self.num_running = dict.fromkeys(self.classes, 0)
        self.num_preemptions = 0

    def live(self) -> list[Seen]:
        return [seen for seen in self.requests.values() if seen.terminal is None]

    def running_ids(self, class_name: str | None = None) -> list[SequenceId]:
        return [
            line.sequence_id
            for seen in self.live()
            for line in seen.lines
            if line.state == "running" and class_name in (None, seen.request.class_name)
        ]

    def lines(self, ids: Collection[SequenceId]) -> list[Line]:
        return [line for seen in self.live() for line in seen.lines if line.sequence_id in ids]

    def submitted(self, request: Request, now: float, answered: ev.Admitted | ev.Rejected) -> None:
        service = self.classes.get(request.class_name)
        seen = Seen(request, now, service)
        assert request.request_id not in self.requests
        self.requests[request.request_id] = seen
        if isinstance(answered, ev.Rejected):
            self.see((answered,), now)
            self._refusal_has_a_cause(seen, answered)
            return
        assert service is not None, "a class that nobody declared was admitted"
        sampling = request.sampling
        most = service.max_output_tokens
        clamped = most if most is not None and most < sampling.max_tokens else None
        assert answered.clamped_max_tokens == clamped
        if clamped is not None:
            sampling = dataclasses.replace(
                sampling, max_tokens=clamped, min_tokens=min(sampling.min_tokens, clamped)
            )
        self._queue_has_room(seen, service)
        assert len(answered.sequence_ids) == request.n
        for index, sequence_id in enumerate(answered.sequence_ids):
            new = NewSequence(
                sequence_id, request.request_id, index, request.prompt_token_ids, sampling
            )
            seen.lines.append(Line(sequence_id, answer(new, self.draws, request.cache_salt)))

    def _queue_has_room(self, seen: Seen, service: ServiceClass) -> None:
        if service.reserved_slots:
            return  # such a class never queues
        num_new = seen.request.n
        waiting = self.num_waiting()
        num_after = waiting + Counter({service.name: num_new})
        caps = (
            (self.limits.max_queue_requests, waiting.total(), self._num_excess(num_after)),
            (
                service.max_queue_requests,
                waiting[service.name],
                num_after[service.name] - self._num_startable(service),
            ),
        )
        for most, num_waiting, num_excess in caps:
            may_wait_whole = num_waiting == 0 and num_new > 1 and most != 0
            assert most is None or num_excess <= most or may_wait_whole, "too many wait"
        for most, tokens in (
            (self.limits.max_queue_tokens, self.num_waiting_tokens()),
            (service.max_queue_tokens, self.num_waiting_tokens(service)),
        ):
            num_tokens = tokens + num_new * len(seen.request.prompt_token_ids)
            assert most is None or tokens == 0 or num_tokens <= most, "too many tokens wait"

    def num_waiting(self) -> Counter[str]:
        """Sequences that never ran, by class."""
        states = ((each.request.class_name, li.state) for each in self.live() for li in each.lines)
        return Counter(name for name, state in states if state == "waiting")

    def num_waiting_tokens(self, service: ServiceClass | None = None) -> int:
        return sum(
            len(each.request.prompt_token_ids)
            for each in self.live()
            for line in each.lines
            if line.state == "waiting" and service in (None, each.service)
        )

    def _num_excess(self, num_waiting: Counter[str]) -> int:
        """How many would wait for a slot at least, if so many waited."""
        num_stuck = sum(
            max(number - self._num_startable(self.classes[name]), 0)
            for name, number in num_waiting.items()
        )
        return max(num_stuck, num_waiting.total() - self._num_free())

    def _num_free(self) -> int:
        num_running = sum(self.num_running.values())
        is_closed = self.limits.batching is Batching.STATIC and num_running > 0
        return 0 if is_closed else self.limits.max_num_seqs - num_running

    def _num_startable(self, service: ServiceClass) -> int:
        """How many sequences of the class could start at most: blocks and minimum shares aside."""
        reserved = sum(
            max(each.reserved_slots - self.num_running[each.name], 0)
            for each in self.classes.values()
            if each is not service
        )
        # a share such as 0.58 of 100 is 58, though the product of the floats is a little less
        share = int(round(service.max_running_share * self.limits.max_num_seqs, 9))
        own = max(share, 1) - self.num_running[service.name]
        return max(min(self._num_free() - reserved, own), 0)

    def _refusal_has_a_cause(self, seen: Seen, refusal: ev.Rejected) -> None:
        assert refusal.message
        limits, service = self.limits, seen.service
        match refusal.reason:
            case ev.RejectReason.QUEUE_FULL:
                assert service is not None
                caps = (limits.max_queue_requests, limits.max_queue_tokens)
                own = (service.max_queue_requests, service.max_queue_tokens)
                assert any(cap is not None for cap in (*caps, *own))
                assert refusal.retry_after_s is not None
                if limits.max_queue_tokens is None and service.max_queue_tokens is None:
                    num_waiting = self.num_waiting()
                    totals = (num_waiting.total(), num_waiting[service.name])
                    assert any(
                        most is not None and total + seen.request.n > most
                        for total, most in zip(totals, (caps[0], own[0]), strict=True)
                    ), "refused though so many may wait in any case"
            case ev.RejectReason.RESERVED_FULL:
                assert service is not None
                assert service.reserved_slots > 0
            case ev.RejectReason.DUPLICATE:
                raise AssertionError("no id was used twice")

    def see(self, events: Iterable[ev.Event], now: float) -> None:
        for event in events:
            seen = self.requests[event.request_id]
            assert seen.terminal is None, f"{event} after {seen.terminal}"
            match event:
                case ev.Started():
                    self._started(seen, event, now)
                case ev.Preempted():
                    self._preempted(seen, seen.lines[event.index], event)
                case ev.Resumed():
                    line = seen.lines[event.index]
                    assert line.state == "preempted", f"{event} of a {line.state} sequence"
                    self._runs(seen, line)
                case ev.TokenReady():
                    self._spoke(seen.lines[event.index], event.token.token_id)
                case ev.PromptScored():
                    self._scored(seen, event)
                case ev.SequenceFinished():
                    self._sequence_finished(seen, event)
                case _:
                    assert isinstance(event, ev.TERMINAL)
                    self._ended(seen, event, now)

    def _runs(self, seen: Seen, line: Line) -> None:
        line.state = "running"
        seen.has_run = True
        self.num_running[seen.request.class_name] += 1

    def _leaves(self, seen: Seen, line: Line, state: str) -> None:
        if line.state == "running":
            self.num_running[seen.request.class_name] -= 1
        line.state = state

    def _started(self, seen: Seen, event: ev.Started, now: float) -> None:
        line = seen.lines[event.index]
        assert line.state == "waiting", f"{event} of a {line.state} sequence"
        assert abs(event.queued_s - (now - seen.submitted_at)) < EPSILON
        assert 0 <= event.num_passed <= self.limits.max_passes
        num_prompt = len(seen.request.prompt_token_ids)
        assert 0 <= event.num_cached_tokens < num_prompt
        if event.num_cached_tokens:
            assert self.limits.enable_prefix_sharing
        self._runs(seen, line)

    def _preempted(self, seen: Seen, line: Line, event: ev.Preempted) -> None:
        assert line.state == "running", f"{event} of a {line.state} sequence"
        line.num_preemptions += 1
        self.num_preemptions += 1
        assert line.num_preemptions <= self.limits.max_preemptions, "preempted too often"
        assert seen.service is not None
        assert not seen.service.reserved_slots, "reserved work was preempted"
        assert event.why
        if event.mode is ev.PreemptionMode.SWAP:
            assert self.limits.preemption_mode is not PreemptionChoice.RECOMPUTE
            assert 0 < event.num_swapped_blocks <= self.limits.num_swap_blocks
            assert event.num_lost_tokens == 0
        else:
            assert event.num_swapped_blocks == 0
        self._leaves(seen, line, "preempted")

    def _spoke(self, line: Line, token_id: int) -> None:
        assert line.state in ("running", "preempted"), f"a token of a {line.state} sequence"
        place = len(line.outputs)
        assert place < len(line.expected), "it went on beyond its end"
        assert token_id == line.expected[place], "another token than alone"
        line.outputs.append(token_id)

    def _scored(self, seen: Seen, event: ev.PromptScored) -> None:
        line = seen.lines[event.index]
        assert event.index == 0
        scored = event.logprobs
        assert scored.start == line.num_scored, "a prompt position was left out or said twice"
        line.num_scored += len(scored.entries)
        prompt = seen.request.prompt_token_ids[scored.start : line.num_scored]
        assert tuple(entry.token_id for entry in scored.entries) == prompt

    def _sequence_finished(self, seen: Seen, event: ev.SequenceFinished) -> None:
        line = seen.lines[event.index]
        assert line.state != "ended"
        self._leaves(seen, line, "ended")
        if event.stop_token_id is not None:
            assert event.reason is ev.FinishReason.STOP
            assert line.outputs[-1] == event.stop_token_id
        if event.stop_token_id is not None or event.reason is ev.FinishReason.LENGTH:
            assert tuple(line.outputs) == line.expected
            if seen.request.sampling.prompt_logprobs is not None and event.index == 0:
                assert line.num_scored == len(seen.request.prompt_token_ids)

    def _ended(self, seen: Seen, event: ev.Event, now: float) -> None:
        seen.terminal = event
        if isinstance(event, ev.Finished):
            assert all(line.state == "ended" for line in seen.lines)
        if isinstance(event, ev.Failed):
            ids = {line.sequence_id for line in seen.lines}
            assert ids & self.failed_ids, "a failure took another request with it"
        if isinstance(event, ev.Expired):
            self._expired(seen, event, now)
        for line in seen.lines:
            self._leaves(seen, line, "ended")

    def _expired(self, seen: Seen, event: ev.Expired, now: float) -> None:
        assert seen.service is not None
        assert abs(event.waited_s - (now - seen.submitted_at)) < EPSILON
        assert event.waited_s >= self.timeout(seen, event.reason) - EPSILON
        if event.reason is ev.ExpireReason.QUEUE_TIMEOUT:
            assert not seen.has_run

    def timeout(self, seen: Seen, reason: ev.ExpireReason) -> float:
        assert seen.service is not None
        own, default = seen.request.queue_timeout_s, seen.service.queue_timeout_s
        if reason is ev.ExpireReason.REQUEST_TIMEOUT:
            own, default = seen.request.request_timeout_s, seen.service.request_timeout_s
        return min((limit for limit in (own, default) if limit is not None), default=float("inf"))

    def hold(self, seen: Seen) -> float:
        """How long new work of the request's class may be held, in seconds."""
        assert seen.service is not None
        if seen.service.reserved_slots:
            return 0.0
        own = seen.service.max_waiting_time_s
        return self.limits.max_waiting_time_s if own is None else own
