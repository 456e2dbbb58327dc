"""The engine's metrics: scheduler events in, Prometheus text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from prometheus_client import generate_latest

from headway.core.events import (
    Admitted,
    Cancelled,
    Event,
    Expired,
    Failed,
    Finished,
    FinishReason,
    Preempted,
    Rejected,
    RejectReason,
    SequenceFinished,
    Started,
    TokenReady,
)
from headway.core.plan import RequestId
from headway.core.request import Request
from headway.core.statistics import Statistics
from headway.metrics.bounded import BoundedLabel
from headway.metrics.by_class import ClassInstruments
from headway.metrics.gauges import StatisticsCollector
from headway.metrics.registry import (
    HttpInstruments,
    KvInstruments,
    OwnRegistry,
    RequestInstruments,
    StepInstruments,
    TokenInstruments,
)
from headway.metrics.story import RequestStory, SequenceTimes

MAX_CLASSES = 64
MAX_REASONS = 32


class EngineMetrics:
    """All metrics of one engine, and of the server before it.

    ``on_submitted``, ``on_events`` and ``on_step`` are called in order from one thread;
    ``on_http_request`` and ``render`` from any. ``now`` is in seconds on the engine's clock.
    """

    def __init__(
        self,
        model_name: str,
        statistics: Callable[[], Statistics],
        computing: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Make the metrics; ``statistics`` is asked at each scrape, in the scraping thread.

        ``computing`` says what computes, by the names of labels.
        """
        self.registry = OwnRegistry()
        self._requests = RequestInstruments(self.registry)
        self._tokens = TokenInstruments(self.registry)
        self._kv = KvInstruments(self.registry)
        self._steps = StepInstruments(self.registry)
        self._http = HttpInstruments(self.registry)
        self.registry.register(StatisticsCollector(model_name, statistics, computing))
        self._stories: dict[RequestId, RequestStory] = {}
        self._classes: dict[str, ClassInstruments] = {}
        self._class_label = BoundedLabel(MAX_CLASSES)
        self._reason_label = BoundedLabel(MAX_REASONS)

    def on_submitted(self, request: Request, now: float) -> None:
        """Take note of a request, before its Admitted or Rejected."""
        if request.request_id in self._stories:
            return  # a duplicate: the live request keeps its story, and Rejected follows
        self._stories[request.request_id] = RequestStory(
            self._class_label(request.class_name), len(request.prompt_token_ids), now
        )

    def on_events(self, events: Sequence[Event], now: float) -> None:
        """Count what happened."""
        for event in events:
            if type(event) is TokenReady:  # nearly all are
                self._on_token(event, now)
            elif isinstance(event, Started):
                self._on_started(event)
            elif isinstance(event, SequenceFinished):
                self._on_sequence_finished(event)
            elif isinstance(event, Preempted):
                self._of(self._stories[event.request_id].class_name).preempted(event)
            elif isinstance(event, Admitted):
                self._on_admitted(event)
            elif isinstance(event, Rejected):
                self._on_rejected(event)
            elif isinstance(event, Finished | Failed | Cancelled | Expired):
                self._on_end(event, now)

    def on_step(self, num_sequences: int, num_tokens: int, elapsed_s: float) -> None:
        """Record one step."""
        self._steps.sequences.observe(num_sequences)
        self._steps.tokens.observe(num_tokens)
        self._steps.duration.observe(elapsed_s)

    def on_http_request(self, route: str, status: int) -> None:
        """Count an HTTP request that ended; the caller keeps the number of routes bounded."""
        self._http.requests.labels(route, str(status)).inc()

    @property
    def num_live(self) -> int:
        """Requests without a terminal event."""
        return len(self._stories)

    def render(self) -> bytes:
        """Return everything in Prometheus' text format (see ``CONTENT_TYPE``)."""
        return generate_latest(self.registry)

    def _on_token(self, event: TokenReady, now: float) -> None:
        story = self._stories[event.request_id]
        instruments = self._of(story.class_name)
        instruments.output_tokens.inc()
        times = story.sequences.get(event.index)
        if times is not None:
            instruments.inter_token_latency.observe(now - times.last_token_at)
            times.last_token_at = now
            times.num_tokens += 1
            return
        if not story.sequences:
            instruments.time_to_first_token.observe(now - story.submitted_at)
        story.sequences[event.index] = SequenceTimes(now, now)

    def _on_admitted(self, event: Admitted) -> None:
        if event.clamped_max_tokens is not None:
            self._of(self._stories[event.request_id].class_name).clamped.inc()

    def _on_started(self, event: Started) -> None:
        story = self._stories[event.request_id]
        if story.started:
            return
        story.started = True
        instruments = self._of(story.class_name)
        instruments.queue_time.observe(event.queued_s)
        instruments.prompt_tokens.inc(story.num_prompt_tokens)
        instruments.cache_hits.inc(event.num_cached_tokens)

    def _on_sequence_finished(self, event: SequenceFinished) -> None:
        if event.reason is FinishReason.LENGTH:
            self._stories[event.request_id].hit_length = True

    def _on_rejected(self, event: Rejected) -> None:
        story = self._stories[event.request_id]
        if event.reason is not RejectReason.DUPLICATE:
            del self._stories[event.request_id]
        self._of(story.class_name).ended("rejected", event.reason)

    def _on_end(self, event: Finished | Failed | Cancelled | Expired, now: float) -> None:
        story = self._stories.pop(event.request_id)
        instruments = self._of(story.class_name)
        outcome, reason = self._outcome(event, story)
        instruments.ended(outcome, reason)
        instruments.lasted(outcome, now - story.submitted_at)
        if not story.started:
            instruments.queue_time.observe(now - story.submitted_at)
        tpot = story.time_per_output_token()
        if tpot is not None and isinstance(event, Finished):
            instruments.time_per_output_token.observe(tpot)

    def _outcome(
        self, event: Finished | Failed | Cancelled | Expired, story: RequestStory
    ) -> tuple[str, str]:
        if isinstance(event, Finished):
            return "finished", story.finish_reason()
        if isinstance(event, Cancelled):
            return "cancelled", self._reason_label(event.reason)
        if isinstance(event, Expired):
            return "expired", event.reason
        return "failed", "error"

    def _of(self, class_name: str) -> ClassInstruments:
        found = self._classes.get(class_name)
        if found is None:
            found = ClassInstruments(self._requests, self._tokens, self._kv, class_name)
            self._classes[class_name] = found
        return found
