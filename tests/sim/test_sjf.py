"""Shortest job first by a guess: better for most, and never worse than the bound for anybody."""

from __future__ import annotations

import pytest
from benchmarks.sjf import AGEING_S, Outcome


@pytest.fixture(scope="module")
def outcome(sjf_shown: Outcome) -> Outcome:
    return sjf_shown


def test_mean_and_median_latency_fall_with_what_is_learned(outcome) -> None:
    fcfs, learned = outcome.runs["fcfs"], outcome.runs["sjf, learned"]
    assert learned.mean_s < fcfs.mean_s
    assert learned.median_s < fcfs.median_s
    assert learned.mean_ttft_s < fcfs.mean_ttft_s


def test_knowing_is_better_than_guessing(outcome) -> None:
    oracle, learned = outcome.runs["sjf, oracle"], outcome.runs["sjf, learned"]
    assert oracle.mean_s < learned.mean_s
    assert oracle.median_s < learned.median_s


def test_a_wrong_guess_costs_latency_but_keeps_the_bound(outcome) -> None:
    fcfs, inverted = outcome.runs["fcfs"], outcome.runs["sjf, inverted"]
    assert inverted.mean_s > fcfs.mean_s  # it is wrong indeed
    assert inverted.p999_wait_s < AGEING_S


def test_every_wait_is_within_its_bound(outcome) -> None:
    for run in outcome.runs.values():
        assert run.p999_wait_s < AGEING_S
        assert run.largest_part_of_bound <= 1.0
        assert run.first_token_part_of_bound <= 1.0


def test_in_a_crowd_nobody_goes_before_who_had_come_so_long_before(outcome) -> None:
    """All wait for minutes, so only the handicap limits who goes first; and it is made use of."""
    crowd = outcome.crowd
    assert crowd.longest_wait_s > 4 * AGEING_S
    assert AGEING_S / 3 < crowd.longest_jump_s <= AGEING_S
