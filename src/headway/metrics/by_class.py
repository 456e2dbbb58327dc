"""The instruments of one class, looked up once: finding a labelled child is the dear part."""

from __future__ import annotations

from headway.core.events import Preempted
from headway.metrics.registry import KvInstruments, RequestInstruments, TokenInstruments


class ClassInstruments:
    """Children of the labelled metrics for one value of ``class``."""

    def __init__(
        self,
        requests: RequestInstruments,
        tokens: TokenInstruments,
        kv: KvInstruments,
        class_name: str,
    ) -> None:
        self._requests = requests
        self._kv = kv
        self._class_name = class_name
        self.prompt_tokens = requests.prompt_tokens.labels(class_name)
        self.output_tokens = requests.output_tokens.labels(class_name)
        self.clamped = requests.clamped.labels(class_name)
        self.cache_hits = kv.cache_hits.labels(class_name)
        self.lost_tokens = kv.lost_tokens.labels(class_name)
        self.queue_time = requests.queue_time.labels(class_name)
        self.time_to_first_token = tokens.time_to_first_token.labels(class_name)
        self.time_per_output_token = tokens.time_per_output_token.labels(class_name)
        self.inter_token_latency = tokens.inter_token_latency.labels(class_name)

    def ended(self, outcome: str, reason: str) -> None:
        """Count a request that ended."""
        self._requests.requests.labels(self._class_name, outcome, reason).inc()

    def lasted(self, outcome: str, seconds: float) -> None:
        """Record how long an admitted request took."""
        self._requests.request_duration.labels(self._class_name, outcome).observe(seconds)

    def preempted(self, event: Preempted) -> None:
        """Count a preemption and what it costs."""
        self._kv.preemptions.labels(self._class_name, event.mode, event.cause).inc()
        self.lost_tokens.inc(event.num_lost_tokens)
