"""Every metric that events feed, declared once: name, kind, unit, labels, meaning.

Times are in seconds. TTFT counts from arrival, queueing included; TPOT is one value a request; ITL
is one value a gap between two tokens. Gauges are computed at scrape time: see :mod:`.gauges`.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics_core import Metric

from headway.metrics.histogram import Histogram

__all__ = [
    "CONTENT_TYPE",
    "HttpInstruments",
    "KvInstruments",
    "OwnRegistry",
    "RequestInstruments",
    "StepInstruments",
    "TokenInstruments",
]

# From a millisecond to an hour, denser where people set targets.
TIME_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600,
)  # fmt: skip
SEQUENCE_BUCKETS = tuple(2**power for power in range(11))  # 1 to 1024
TOKEN_BUCKETS = tuple(2**power for power in range(17))  # 1 to 65536


class OwnRegistry(CollectorRegistry):
    """A registry of one engine, without the ``_created`` series, which only double the page."""

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families as they are now."""
        for family in super().collect():
            family.samples = [
                sample for sample in family.samples if not sample.name.endswith("_created")
            ]
            yield family


def _counter(registry: CollectorRegistry, name: str, meaning: str, *labels: str) -> Counter:
    return Counter(name, meaning, labels, registry=registry)


def _times(registry: CollectorRegistry, name: str, meaning: str, *labels: str) -> Histogram:
    return Histogram(registry, name, meaning, labels, TIME_BUCKETS)


class RequestInstruments:
    """What is counted of requests, by class."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = _counter(
            registry,
            "headway_requests",
            "Requests that ended, by outcome (finished, failed, cancelled, expired, rejected) and "
            "the reason for it.",
            "class",
            "outcome",
            "reason",
        )
        self.prompt_tokens = _counter(
            registry,
            "headway_prompt_tokens",
            "Prompt tokens of requests that began to run, each prompt counted once.",
            "class",
        )
        self.output_tokens = _counter(
            registry, "headway_output_tokens", "Tokens generated.", "class"
        )
        self.queue_time = _times(
            registry,
            "headway_queue_time_seconds",
            "From arrival until a request first ran, or left without having run.",
            "class",
        )
        self.clamped = _counter(
            registry,
            "headway_clamped_requests",
            "Requests that asked for more output tokens than their class allows.",
            "class",
        )
        self.request_duration = _times(
            registry,
            "headway_request_duration_seconds",
            "From the arrival of an admitted request to its end.",
            "class",
            "outcome",
        )


class KvInstruments:
    """What sharing saves and preemption costs, by class."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cache_hits = _counter(
            registry,
            "headway_prefix_cache_hit_tokens",
            "Prompt tokens of requests that began to run whose keys and values were there already.",
            "class",
        )
        self.preemptions = _counter(
            registry,
            "headway_preemptions",
            "Sequences that gave up slot and blocks, by what became of their keys and values "
            "(mode: recompute, swap) and for whom (cause: blocks, priority, share, head).",
            "class",
            "mode",
            "cause",
        )
        self.lost_tokens = _counter(
            registry,
            "headway_preempted_tokens",
            "Tokens of preempted sequences that must be computed again.",
            "class",
        )


class TokenInstruments:
    """When tokens came, by class."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.time_to_first_token = _times(
            registry,
            "headway_time_to_first_token_seconds",
            "From the arrival of a request to its first token, queueing included.",
            "class",
        )
        self.time_per_output_token = _times(
            registry,
            "headway_time_per_output_token_seconds",
            "(last token - first token) / (output tokens - 1), one value a finished request.",
            "class",
        )
        self.inter_token_latency = _times(
            registry,
            "headway_inter_token_latency_seconds",
            "Each gap between two tokens of a sequence.",
            "class",
        )


class StepInstruments:
    """What steps compute and how long they take."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.duration = _times(
            registry, "headway_step_duration_seconds", "Time of a step."
        ).labels()
        self.sequences = Histogram(
            registry,
            "headway_step_sequences",
            "Sequences computed in a step.",
            (),
            SEQUENCE_BUCKETS,
        ).labels()
        self.tokens = Histogram(
            registry, "headway_step_tokens", "Tokens computed in a step.", (), TOKEN_BUCKETS
        ).labels()


class HttpInstruments:
    """What the HTTP server answers, refusals that never reach the scheduler included."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = _counter(
            registry,
            "headway_http_requests",
            "HTTP requests that ended, by route and status; 499 is a client that did not wait.",
            "route",
            "status",
        )
