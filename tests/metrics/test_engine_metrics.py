"""Events in, samples out: every metric against a small story with known times."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headway.core.events import (
    Admitted,
    Cancelled,
    Event,
    Expired,
    ExpireReason,
    Failed,
    Finished,
    FinishReason,
    Preempted,
    PreemptionCause,
    PreemptionMode,
    Rejected,
    RejectReason,
    Resumed,
    SequenceFinished,
    Started,
    TokenReady,
)
from headway.core.plan import RequestId, SampledToken, SequenceId
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.core.statistics import ClassStatistics, Statistics
from headway.metrics import CONTENT_TYPE, EngineMetrics
from headway.metrics.engine import MAX_CLASSES, MAX_REASONS
from headway.metrics.registry import TIME_BUCKETS

R = RequestId("r")
COUNTS: dict[str, Any] = {**dict.fromkeys(Statistics.__dataclass_fields__, 0), "classes": ()}


def statistics(**counts: Any) -> Statistics:
    return Statistics(**{**COUNTS, **counts})


def request(request_id: str = R, *, n: int = 1, class_name: str = "default") -> Request:
    sampling = SamplingParams(max_tokens=8)
    return Request(
        request_id=RequestId(request_id),
        prompt_token_ids=(1, 2, 3),
        sampling=sampling,
        n=n,
        class_name=class_name,
    )


def token(index: int = 0, request_id: str = R) -> TokenReady:
    return TokenReady(RequestId(request_id), index, SampledToken(7))


def class_statistics(name: str, *counts: int) -> ClassStatistics:
    fields = list(ClassStatistics.__dataclass_fields__)[1:]
    return ClassStatistics(name=name, **dict(zip(fields, counts, strict=True)))


class Observed:
    """Metrics with a way to read one sample."""

    def __init__(self, now: Statistics | None = None) -> None:
        self.metrics = EngineMetrics("a model", lambda: now or statistics())

    def happen(self, now: float, *events: Event) -> None:
        self.metrics.on_events(events, now)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def times(self, name: str, **labels: str) -> tuple[float | None, float | None]:
        name = f"headway_{name}_seconds"
        labels = {"class": "default", **labels}
        return self.value(f"{name}_count", **labels), self.value(f"{name}_sum", **labels)


@pytest.fixture
def seen() -> Observed:
    return Observed()


def test_one_request_from_arrival_to_end(seen: Observed) -> None:
    seen.metrics.on_submitted(request(), 10.0)
    seen.happen(10.0, Admitted(R, (SequenceId(0),)))
    seen.happen(12.0, Started(R, 0, queued_s=2.0))
    seen.happen(13.0, token())
    seen.happen(14.0, token())
    seen.happen(17.0, token(), SequenceFinished(R, 0, FinishReason.LENGTH), Finished(R))
    assert seen.times("queue_time") == (1, 2.0)
    assert seen.times("time_to_first_token") == (1, 3.0)
    assert seen.times("inter_token_latency") == (2, 4.0)
    assert seen.times("time_per_output_token") == (1, 2.0)
    assert seen.times("request_duration", outcome="finished") == (1, 7.0)
    assert seen.value("headway_prompt_tokens_total", **{"class": "default"}) == 3
    assert seen.value("headway_output_tokens_total", **{"class": "default"}) == 3
    labels = {"class": "default", "outcome": "finished", "reason": "length"}
    assert seen.value("headway_requests_total", **labels) == 1


def test_sequences_of_one_request_share_prompt_and_first_token(seen: Observed) -> None:
    seen.metrics.on_submitted(request(n=2), 0.0)
    seen.happen(1.0, Started(R, 0, 1.0))
    seen.happen(2.0, token(0))
    seen.happen(3.0, Started(R, 1, 3.0))
    seen.happen(4.0, token(1), token(0))
    seen.happen(5.0, SequenceFinished(R, 0, FinishReason.LENGTH))
    seen.happen(10.0, token(1), SequenceFinished(R, 1, FinishReason.STOP, 7), Finished(R))
    assert seen.times("queue_time") == (1, 1.0)
    assert seen.times("time_to_first_token") == (1, 2.0)
    assert seen.times("inter_token_latency") == (2, 8.0)  # 2 to 4, and 4 to 10
    assert seen.times("time_per_output_token") == (1, 4.0)  # (2 + 6) / (1 + 1)
    assert seen.value("headway_prompt_tokens_total", **{"class": "default"}) == 3
    labels = {"class": "default", "outcome": "finished", "reason": "length"}
    assert seen.value("headway_requests_total", **labels) == 1


def test_a_single_token_has_no_time_per_output_token(seen: Observed) -> None:
    seen.metrics.on_submitted(request(), 0.0)
    seen.happen(1.0, Started(R, 0, 1.0), token(), Finished(R))
    assert seen.times("time_per_output_token") == (0, 0.0)
    assert seen.times("time_to_first_token") == (1, 1.0)


@pytest.mark.parametrize(
    ("event", "outcome", "reason"),
    [
        (Failed(R, "out of luck 123"), "failed", "error"),
        (Cancelled(R, "client_disconnected"), "cancelled", "client_disconnected"),
        (Expired(R, ExpireReason.QUEUE_TIMEOUT, 5.0), "expired", "queue_timeout"),
        (Expired(R, ExpireReason.REQUEST_TIMEOUT, 5.0), "expired", "request_timeout"),
    ],
)
def test_work_that_ends_in_the_queue_counts_its_wait(
    seen: Observed, event: Event, outcome: str, reason: str
) -> None:
    seen.metrics.on_submitted(request(), 1.0)
    seen.happen(1.0, Admitted(R, (SequenceId(0),)))
    seen.happen(6.0, event)
    assert seen.times("queue_time") == (1, 5.0)
    assert seen.times("request_duration", outcome=outcome) == (1, 5.0)
    assert seen.times("time_per_output_token") == (0, 0.0)
    labels = {"class": "default", "outcome": outcome, "reason": reason}
    assert seen.value("headway_requests_total", **labels) == 1
    assert seen.value("headway_prompt_tokens_total", **{"class": "default"}) == 0


def test_a_refused_request_waited_for_nothing(seen: Observed) -> None:
    seen.metrics.on_submitted(request(), 1.0)
    seen.happen(1.0, Rejected(R, RejectReason.QUEUE_FULL, "full"))
    labels = {"class": "default", "outcome": "rejected", "reason": "queue_full"}
    assert seen.value("headway_requests_total", **labels) == 1
    assert seen.times("queue_time") == (0, 0.0)
    assert seen.metrics.num_live == 0


def test_a_duplicate_does_not_disturb_the_live_request(seen: Observed) -> None:
    seen.metrics.on_submitted(request(), 1.0)
    seen.happen(1.0, Admitted(R, (SequenceId(0),)))
    seen.metrics.on_submitted(request(), 5.0)
    seen.happen(5.0, Rejected(R, RejectReason.DUPLICATE, "again"))
    assert seen.metrics.num_live == 1
    seen.happen(7.0, Started(R, 0, 6.0), token(), Finished(R))
    assert seen.times("time_to_first_token") == (1, 6.0)
    assert seen.metrics.num_live == 0


def test_classes_are_apart_and_bounded(seen: Observed) -> None:
    for number in range(MAX_CLASSES + 5):
        seen.metrics.on_submitted(request(str(number), class_name=f"c{number}"), 0.0)
        seen.happen(0.0, Started(RequestId(str(number)), 0, 1.0))
    assert seen.times("queue_time", **{"class": "c0"}) == (1, 1.0)
    assert seen.times("queue_time", **{"class": "other"}) == (5, 5.0)
    assert seen.times("queue_time", **{"class": f"c{MAX_CLASSES}"}) == (None, None)


def test_reasons_from_outside_are_bounded(seen: Observed) -> None:
    for number in range(MAX_REASONS + 5):
        seen.metrics.on_submitted(request(str(number)), 0.0)
        seen.happen(0.0, Cancelled(RequestId(str(number)), f"reason {number}"))
    labels = {"class": "default", "outcome": "cancelled", "reason": "other"}
    assert seen.value("headway_requests_total", **labels) == 5


def test_steps(seen: Observed) -> None:
    seen.metrics.on_step(3, 100, 0.25)
    seen.metrics.on_step(1, 1, 0.25)
    assert seen.value("headway_step_sequences_sum") == 4
    assert seen.value("headway_step_tokens_sum") == 101
    assert seen.value("headway_step_duration_seconds_sum") == 0.5
    assert seen.value("headway_step_tokens_bucket", le="64.0") == 1


def test_http_requests(seen: Observed) -> None:
    for status in (200, 400, 400):
        seen.metrics.on_http_request("/v1/completions", status)
    labels = {"route": "/v1/completions", "status": "400"}
    assert seen.value("headway_http_requests_total", **labels) == 2


def test_preemptions_are_told_apart_by_class_mode_and_cause(seen: Observed) -> None:
    for name, class_name in (("a", "chat"), ("b", "batch")):
        seen.metrics.on_submitted(request(name, class_name=class_name), 0.0)
    swapped = Preempted(
        RequestId("b"), 0, 0, PreemptionMode.SWAP, PreemptionCause.SHARE, num_swapped_blocks=4
    )
    seen.happen(1.0, Preempted(RequestId("a"), 0, 30), Preempted(RequestId("a"), 0, 5), swapped)
    count = "headway_preemptions_total"
    own = {"class": "chat", "mode": "recompute", "cause": "blocks"}
    assert seen.value(count, **own) == 2
    assert seen.value(count, **{"class": "batch", "mode": "swap", "cause": "share"}) == 1
    assert seen.value("headway_preempted_tokens_total", **{"class": "chat"}) == 35
    assert seen.value("headway_preempted_tokens_total", **{"class": "batch"}) == 0


def test_a_prompt_in_the_cache_counts_once(seen: Observed) -> None:
    """As the prompt itself: what a request's later sequences share with its first is no hit."""
    seen.metrics.on_submitted(request(n=2), 0.0)
    seen.happen(1.0, Started(R, 0, 1.0, 0, 2), Started(R, 1, 1.0, 0, 3))
    assert seen.value("headway_prefix_cache_hit_tokens_total", **{"class": "default"}) == 2
    assert seen.value("headway_prompt_tokens_total", **{"class": "default"}) == 3


def test_clamped_requests_are_counted(seen: Observed) -> None:
    for number, clamp in enumerate((None, 5)):
        name = RequestId(str(number))
        seen.metrics.on_submitted(request(name), 0.0)
        seen.happen(0.0, Admitted(name, (SequenceId(number),), clamp))
    assert seen.value("headway_clamped_requests_total", **{"class": "default"}) == 1


def test_gauges_are_read_at_scrape_time() -> None:
    now = [statistics(num_blocks=8, num_free_blocks=8)]
    metrics = EngineMetrics("m", lambda: now[0])
    now[0] = statistics(
        num_waiting=2,
        num_waiting_sequences=7,
        num_preempted=1,
        num_running=3,
        num_live=4,
        num_waiting_tokens=40,
        num_blocks=8,
        num_free_blocks=2,
        block_size=16,
        num_swap_blocks=5,
        num_free_swap_blocks=1,
        num_swapped_out_blocks=9,
        num_swapped_in_blocks=5,
        num_evicted_blocks=11,
        num_resumed=3,
        classes=(
            class_statistics("chat", 5, 2, 1, 4, 100, 20),
            class_statistics("batch", 2, 0, 2, 2, 300, 60),
        ),
    )
    read = metrics.registry.get_sample_value
    model = {"model_name": "m"}
    assert read("headway_requests_waiting") == 2
    assert read("headway_requests_running") == 2  # four live ones, two of which wait
    assert read("headway_sequences_waiting") == 7
    assert read("headway_sequences_running") == 3
    assert read("headway_sequences_preempted") == 1
    assert read("headway_waiting_tokens") == 40
    assert read("headway_kv_blocks", {"state": "free"}) == 2
    assert read("headway_kv_blocks", {"state": "used"}) == 6
    assert read("headway_kv_usage_ratio") == 0.75
    assert read("headway_swap_blocks", {"state": "free"}) == 1
    assert read("headway_swap_blocks", {"state": "used"}) == 4
    assert read("headway_swapped_blocks_total", {"direction": "out"}) == 9
    assert read("headway_swapped_blocks_total", {"direction": "in"}) == 5
    assert read("headway_evicted_blocks_total") == 11
    assert read("headway_resumptions_total") == 3
    chat, batch = {"class": "chat"}, {"class": "batch"}
    assert read("headway_class_sequences_waiting", chat) == 5
    assert read("headway_class_sequences_held", chat) == 2
    assert read("headway_class_sequences_running", batch) == 2
    assert read("headway_class_kv_blocks", chat) == 4
    assert read("headway_class_served_input_tokens_total", batch) == 300
    assert read("headway_class_served_output_tokens_total", batch) == 60
    assert read("vllm:num_requests_running", model) == 3
    assert read("vllm:num_requests_waiting", model) == 8
    assert read("vllm:kv_cache_usage_perc", model) == 0.75
    shape = {**model, "block_size": "16", "num_gpu_blocks": "8"}
    assert read("vllm:cache_config_info", shape) == 1


def test_the_page_parses_and_has_no_stale_families(seen: Observed) -> None:
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
    page = seen.metrics.render().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert "headway_requests_running" in families
    assert families["headway_step_duration_seconds"].type == "histogram"
    assert "_created" not in page
    assert all(family.documentation for family in families.values())


def test_two_engines_do_not_share_metrics() -> None:
    first, second = Observed(), Observed()
    first.metrics.on_step(1, 1, 1.0)
    assert second.value("headway_step_tokens_count") == 0


def test_time_buckets_span_a_millisecond_to_half_an_hour() -> None:
    assert list(TIME_BUCKETS) == sorted(set(TIME_BUCKETS))
    assert TIME_BUCKETS[0] <= 0.001
    assert TIME_BUCKETS[-1] >= 1800


def ends(request_id: RequestId) -> Iterable[Event]:
    return (
        Finished(request_id),
        Failed(request_id, "x"),
        Cancelled(request_id, "x"),
        Expired(request_id, ExpireReason.REQUEST_TIMEOUT, 1.0),
        Rejected(request_id, RejectReason.QUEUE_FULL, "x"),
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=20))
def test_nothing_is_kept_of_ended_requests(plan: list[tuple[int, int]]) -> None:
    """Whatever a request went through and however it ended, no state stays, and it counts once."""
    seen = Observed()
    for number, (end, num_tokens) in enumerate(plan):
        name = RequestId(str(number))
        seen.metrics.on_submitted(request(name), 0.0)
        middle: list[Event] = []
        if end != 4:
            middle = [Admitted(name, (SequenceId(number),)), Started(name, 0, 1.0)]
            middle += [Preempted(name, 0, 3), Resumed(name, 0)]
            middle += [token(0, name)] * num_tokens
        seen.happen(1.0, *middle, list(ends(name))[end])
    assert seen.metrics.num_live == 0
    page = seen.metrics.render().decode()
    counted = sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "headway_requests_total"
    )
    assert counted == len(plan)
