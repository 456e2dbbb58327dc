"""Least slack first, with chunks sized to the targets: more promises kept at the same load."""

from __future__ import annotations

import pytest
from benchmarks.slo import CHAT, DOCUMENT, Outcome, demonstrate


@pytest.fixture(scope="module", params=[1, 7])
def outcome(request: pytest.FixtureRequest, slo_shown: Outcome) -> Outcome:
    return slo_shown if request.param == 1 else demonstrate(seed=request.param)


def test_more_requests_keep_all_their_promises(outcome) -> None:
    assert outcome.goodput_ratio > 1.2


def test_no_running_sequence_misses_its_target_for_further_tokens(outcome) -> None:
    for targets, report in zip((CHAT, DOCUMENT), outcome.slo.classes, strict=True):
        assert report.p99_tpot_s <= targets.tpot_target_s
    chats = outcome.fcfs.classes[0]
    assert chats.p99_tpot_s > CHAT.tpot_target_s  # it is missed without


def test_both_classes_meet_their_targets_and_no_tokens_are_lost(outcome) -> None:
    assert all(report.attained > 0.98 for report in outcome.slo.classes)
    assert outcome.slo.output_tokens_per_s > 0.98 * outcome.fcfs.output_tokens_per_s
