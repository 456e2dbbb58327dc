"""Figures: by hand, and against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import crowd, record

from headway.report import Outcome, distribution, figures, meets
from headway.workload import EVERY_CLASS, Targets


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=200))
def test_distributions_are_those_of_numpy(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert found.deviation == pytest.approx(np.std(values), rel=1e-6, abs=1e-6)
    quantiles = [found.p50, found.p90, found.p99, found.p999]
    expected = np.percentile(values, [50, 90, 99, 99.9])
    assert quantiles == pytest.approx(list(expected), rel=1e-9, abs=1e-9)
    assert (found.least, found.most) == (min(values), max(values))


def test_nothing_has_no_distribution() -> None:
    assert distribution([]) is None


def test_latencies_count_from_when_a_request_was_due() -> None:
    late = record(1.0, (4.0, 4.5, 5.5), sent_s=3.0)
    assert late.ttft_s == 3.0
    assert late.e2el_s == 4.5
    assert late.late_s == 2.0
    assert list(late.gaps_s()) == [0.5, 1.0]


def test_tpot_divides_by_tokens_and_not_by_pieces() -> None:
    coalesced = record(0.0, (1.0, 2.0))
    coalesced.output_tokens, coalesced.ended_s = 5, 3.0
    assert coalesced.tpot_s == pytest.approx(2.0 / 4)
    assert record(0.0, (1.0,)).tpot_s is None


def test_figures_by_hand() -> None:
    records = [
        record(0.0, (1.0, 2.0)),
        record(1.0, (1.5, 4.5), sent_s=1.25),
        record(2.0, (), outcome=Outcome.FAILED, error="http 503 queue_full"),
        record(2.0, (), outcome=Outcome.FAILED, error="http 503 queue_full"),
        record(2.0, (), outcome=Outcome.FAILED, error="timeout"),
        record(3.0, (3.1, 9.0), stalled=True),
        record(3.0, (3.1,), outcome=Outcome.CANCELLED),
        record(4.0, (4.1,), outcome=Outcome.UNFINISHED),
    ]
    made = figures(records, 10.0, {"default": Targets(ttft_s=0.6)})
    assert made.num_requests == 8
    assert (made.num_completed, made.num_failed) == (3, 3)
    assert (made.num_stalled, made.num_cancelled, made.num_unfinished) == (1, 1, 1)
    assert list(made.errors.items()) == [("http 503 queue_full", 2), ("timeout", 1)]
    assert (made.input_tokens, made.output_tokens) == (30, 6)
    assert made.a_second(made.output_tokens) == pytest.approx(0.6)
    ttft, late = made.latencies.ttft, made.latencies.late
    assert ttft is not None
    assert list(ttft.values) == [0.5, 1.0]  # of those completed by clients that read
    assert late is not None
    assert late.most == 0.25
    assert len(late.values) == 8
    assert made.num_good == 1
    assert made.goodput == pytest.approx(0.1)
    assert made.attained == pytest.approx(1 / 6)  # nobody who left or stalled is judged


def test_every_target_has_to_be_met() -> None:
    slow_start, slow_on = record(0.0, (2.0, 2.1)), record(0.0, (0.1, 1.9))
    one_token = record(0.0, (0.1,))
    assert meets(slow_start, Targets(tpot_s=0.5))
    assert not meets(slow_start, Targets(ttft_s=0.5, tpot_s=0.5))
    assert meets(slow_on, Targets(ttft_s=0.5))
    assert not meets(slow_on, Targets(ttft_s=0.5, tpot_s=0.5))
    assert not meets(slow_on, Targets(e2el_s=1.8))
    assert meets(one_token, Targets(tpot_s=1e-9))
    assert not meets(record(outcome=Outcome.FAILED), None)
    assert meets(record(), None)


def test_each_class_is_judged_by_its_own_targets() -> None:
    both = [record(0.0, (1.0,), class_name="fast"), record(0.0, (1.0,), class_name="slow")]
    assert figures(both, 1.0, {"fast": Targets(ttft_s=0.5)}).num_good == 1
    assert figures(both, 1.0, {EVERY_CLASS: Targets(ttft_s=0.5)}).num_good == 0
    mixed = {EVERY_CLASS: Targets(ttft_s=0.5), "slow": Targets(ttft_s=2.0)}
    assert figures(both, 1.0, mixed).num_good == 1


def test_figures_of_a_crowd_are_those_of_numpy() -> None:
    records = crowd()
    made = figures(records, 7.0, {})
    ttfts = np.array([each.token_times[0] - each.due_s for each in records])
    gaps = np.concatenate([np.diff(each.token_times) for each in records])
    tpots = [
        (each.token_times[-1] - each.token_times[0]) / (len(each.token_times) - 1)
        for each in records
        if len(each.token_times) > 1
    ]
    for found, expected in (
        (made.latencies.ttft, ttfts),
        (made.latencies.itl, gaps),
        (made.latencies.tpot, np.array(tpots)),
    ):
        assert found is not None
        assert found.mean == pytest.approx(expected.mean())
        assert found.p99 == pytest.approx(np.percentile(expected, 99))
    assert made.latencies.queue is None


def test_no_requests_are_no_error() -> None:
    nothing = figures([], 0.0, {})
    assert nothing.attained is None
    assert nothing.goodput == 0.0
