"""Two backlogged tenants: by `fair` neither gets ahead of the other, at no cost."""

from __future__ import annotations

import pytest
from benchmarks.fairness import DURATION_S, LIMITS, Outcome, arrivals, demonstrate

ONE_REQUEST = 256 + 2 * 256


@pytest.fixture(scope="module", params=[1, 2])
def outcome(request: pytest.FixtureRequest, fairness_shown: Outcome) -> Outcome:
    return fairness_shown if request.param == 1 else demonstrate(seed=request.param)


def test_the_gap_is_ten_times_smaller_at_the_same_throughput(outcome) -> None:
    assert outcome.times_smaller >= 10
    assert outcome.throughput_ratio >= 0.98


def test_the_gap_is_flat_with_fair_and_grows_with_fcfs(outcome) -> None:
    assert max(outcome.fair.gap_at) - min(outcome.fair.gap_at) <= 2 * ONE_REQUEST
    assert outcome.fcfs.gap_at[-1] >= 2 * outcome.fcfs.gap_at[1]


def test_it_is_never_more_than_what_a_full_batch_may_differ_by(outcome) -> None:
    # both had to come first: before that whoever is there gets everything
    assert outcome.fair.largest_gap <= LIMITS.max_num_seqs * ONE_REQUEST


def test_both_tenants_send_more_than_their_half(outcome) -> None:
    share = outcome.fair.tokens_per_s / 256 / 2
    for tenant in ("light", "heavy"):
        rate = sum(each.tenant == tenant for each in arrivals(1)) / DURATION_S
        assert rate > share
