"""What is true now, read from the scheduler when somebody scrapes, so it's never stale.

The ``vllm:`` names say the same again under the names that routers and autoscalers look for (the
Gateway API inference extension's model-server protocol).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway._version import __version__
from headway.core.statistics import ClassStatistics, Statistics


class StatisticsCollector(Collector):
    """Turns a snapshot of the scheduler into metric families."""

    def __init__(
        self,
        model_name: str,
        statistics: Callable[[], Statistics],
        computing: Mapping[str, str],
    ) -> None:
        self._model_name = model_name
        self._computing = computing
        self._statistics = statistics

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the statistics."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families for one snapshot."""
        now = self._statistics()
        yield from self._own(now)
        yield from self._aliases(now)

    def _own(self, now: Statistics) -> Iterator[Metric]:
        yield _gauge(
            "headway_info",
            "The model served, by which version of Headway, and what computes it: the executor, "
            "its instruction set (isa), and the precision of the weights and of the KV cache (kv).",
            1,
            **self._computing,
            model_name=self._model_name,
            version=__version__,
        )
        yield from _requests(now)
        yield from _sequences(now)
        yield _blocks(
            "headway_kv_blocks", "KV blocks, by state.", now.num_free_blocks, now.num_blocks
        )
        yield _blocks(
            "headway_swap_blocks",
            "Blocks of the swap space, by state.",
            now.num_free_swap_blocks,
            now.num_swap_blocks,
        )
        yield _gauge("headway_kv_usage_ratio", "Share of the KV blocks in use.", _usage(now))
        yield from _classes(now)
        yield from _moves(now)

    def _aliases(self, now: Statistics) -> Iterator[Metric]:
        model = {"model_name": self._model_name}
        yield _gauge(
            "vllm:num_requests_running",
            "As headway_sequences_running: for vLLM each of n is a request.",
            now.num_running,
            **model,
        )
        yield _gauge(
            "vllm:num_requests_waiting",
            "As headway_sequences_waiting, with the preempted.",
            now.num_waiting_sequences + now.num_preempted,
            **model,
        )
        yield _gauge("vllm:kv_cache_usage_perc", "As headway_kv_usage_ratio.", _usage(now), **model)
        yield _gauge(
            "vllm:cache_config_info",
            "The shape of the KV cache.",
            1,
            block_size=str(now.block_size),
            num_gpu_blocks=str(now.num_blocks),
            **model,
        )


def _requests(now: Statistics) -> Iterator[Metric]:
    yield _gauge(
        "headway_requests_waiting", "Requests of which no sequence has run yet.", now.num_waiting
    )
    yield _gauge(
        "headway_requests_running",
        "Live requests of which some sequence has run.",
        now.num_running_requests,
    )


def _sequences(now: Statistics) -> Iterator[Metric]:
    yield _gauge(
        "headway_sequences_waiting",
        "Sequences that have not run yet; a request has n of them.",
        now.num_waiting_sequences,
    )
    yield _gauge("headway_sequences_running", "Sequences that hold a slot.", now.num_running)
    yield _gauge(
        "headway_sequences_preempted",
        "Sequences that lost their blocks and wait to resume.",
        now.num_preempted,
    )
    yield _gauge(
        "headway_waiting_tokens",
        "Prompt tokens of the waiting sequences.",
        now.num_waiting_tokens,
    )


def _gauge(name: str, meaning: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family


def _blocks(name: str, meaning: str, num_free: int, num_all: int) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=("state",))
    family.add_metric(("free",), num_free)
    family.add_metric(("used",), num_all - num_free)
    return family


def _classes(now: Statistics) -> Iterator[Metric]:
    """What each class has and was served; their number is that of the configured ones."""
    for name, meaning, value in _OF_CLASSES:
        kind = CounterMetricFamily if name in _COUNTED else GaugeMetricFamily
        family = kind(name, meaning, labels=("class",))
        for each in now.classes:
            family.add_metric((each.name,), value(each))
        yield family


def _moves(now: Statistics) -> Iterator[Metric]:
    moved = CounterMetricFamily(
        "headway_swapped_blocks",
        "Blocks moved to the swap space (out) and back (in).",
        labels=("direction",),
    )
    moved.add_metric(("out",), now.num_swapped_out_blocks)
    moved.add_metric(("in",), now.num_swapped_in_blocks)
    yield moved
    yield CounterMetricFamily(
        "headway_evicted_blocks",
        "Blocks with reusable keys and values that were given to others.",
        value=now.num_evicted_blocks,
    )
    yield CounterMetricFamily(
        "headway_resumptions", "Preempted sequences that ran again.", value=now.num_resumed
    )


_OF_CLASSES: tuple[tuple[str, str, Callable[[ClassStatistics], int]], ...] = (
    (
        "headway_class_sequences_waiting",
        "Sequences of a class that have not run yet.",
        lambda each: each.num_waiting_sequences,
    ),
    (
        "headway_class_sequences_held",
        "Of the waiting sequences, those held back for a batch to fill.",
        lambda each: each.num_held,
    ),
    (
        "headway_class_sequences_running",
        "Sequences of a class that hold a slot.",
        lambda each: each.num_running,
    ),
    (
        "headway_class_kv_blocks",
        "KV blocks that the sequences of a class hold.",
        lambda each: each.num_blocks,
    ),
    (
        "headway_class_served_input_tokens",
        "Prompt tokens computed for a class, for fairness; those found in the cache are not in it.",
        lambda each: each.num_served_input_tokens,
    ),
    (
        "headway_class_served_output_tokens",
        "Output tokens computed for a class, for fairness.",
        lambda each: each.num_served_output_tokens,
    ),
)
_COUNTED = ("headway_class_served_input_tokens", "headway_class_served_output_tokens")


def _usage(now: Statistics) -> float:
    return 1 - now.num_free_blocks / now.num_blocks if now.num_blocks else 0.0
