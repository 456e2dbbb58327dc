"""A long prompt among decodes, in virtual time: chunks keep the gaps short, and cost a little."""

from __future__ import annotations

import pytest
from benchmarks.chunked_prefill import CHUNK_TOKENS, COST, NUM_DECODES, Outcome


@pytest.fixture(scope="module")
def outcome(chunked_prefill_shown: Outcome) -> Outcome:
    return chunked_prefill_shown


def test_a_whole_prompt_stalls_every_decode_for_as_long_as_it_takes(outcome) -> None:
    stall_s = COST.base_s + COST.prefill_token_s * outcome.prompt_tokens
    assert outcome.prompt_tokens > 8000
    assert outcome.whole.p99_itl_s == pytest.approx(stall_s, rel=0.01)


def test_with_chunks_no_gap_is_longer_than_a_step(outcome) -> None:
    step_s = COST.base_s + COST.prefill_token_s * CHUNK_TOKENS + COST.decode_s * NUM_DECODES
    assert outcome.chunked.longest_itl_s == pytest.approx(step_s, rel=0.01)
    assert outcome.whole.p99_itl_s > 20 * outcome.chunked.p99_itl_s


def test_the_long_prompt_itself_pays_a_little(outcome) -> None:
    assert 1.0 < outcome.chunked.long_ttft_s / outcome.whole.long_ttft_s < 1.25
