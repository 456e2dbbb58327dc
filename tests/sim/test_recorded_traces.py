"""Recorded traces, where they are at hand, through their readers and the scheduler."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.places import VARIABLE, trace

from headway.core.config import SchedulerConfig
from headway.core.costs import StepCosts
from headway.core.limits import SchedulerLimits
from headway.sim import simulate
from headway.workload import Arrival, WorkloadError, rate_of, read_azure, read_mooncake


def recorded(name: str) -> list[Arrival]:
    try:
        path = trace(name)
    except WorkloadError as error:
        pytest.skip(str(error))
    if name.endswith(".csv"):
        return read_azure(path)
    return read_mooncake(path, Random(1))


@pytest.mark.parametrize(
    ("name", "count", "rate"),
    [
        ("azure2023_conv.csv", 19_366, 5.53),
        ("azure2023_code.csv", 8_819, 2.57),
        ("mooncake_conversation_trace.jsonl", 12_031, 3.40),
    ],
)
def test_all_requests_are_read_at_the_rate_they_had(name: str, count: int, rate: float) -> None:
    arrivals = recorded(name)
    assert len(arrivals) == count
    assert rate_of(arrivals) == pytest.approx(rate, abs=0.01)


def test_conversations_find_their_beginnings_in_the_prefix_cache() -> None:
    arrivals = recorded("mooncake_conversation_trace.jsonl")[:250]
    limits = SchedulerLimits(
        num_blocks=400_000,
        block_size=16,
        max_model_len=131_072,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        enable_prefix_sharing=True,
    )
    cost = StepCosts(base_s=0.01, prefill_token_s=0.00001, decode_s=0.0001)
    result = simulate(SchedulerConfig(limits=limits), arrivals, cost)
    assert all(each.is_finished for each in result.requests)
    for record in result.requests:  # whole blocks, and never the last position
        assert record.num_cached_tokens % 16 == 0
        assert record.num_cached_tokens < record.arrival.prompt_tokens
    most = known_beginnings(arrivals)
    found = sum(each.num_cached_tokens for each in result.requests)
    assert 0.8 * most < found <= most
    assert result.statistics.num_cached_tokens == found


def known_beginnings(arrivals: list[Arrival]) -> int:
    """Return the prompt tokens that a cache without end, and of instant effect, would know."""
    seen: set[int] = set()
    num_tokens = 0
    for each in arrivals:
        assert each.hashes is not None
        num_known = next((i for i, h in enumerate(each.hashes.ids) if h not in seen), None)
        num_known = len(each.hashes.ids) if num_known is None else num_known
        num_tokens += min(512 * num_known, each.prompt_tokens)
        seen.update(each.hashes.ids)
    return num_tokens


def test_where_traces_are_looked_for_can_be_set(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "here.csv").write_text("")
    assert trace("here.csv") == tmp_path / "here.csv"
    with pytest.raises(WorkloadError, match=f"no trace absent.csv in {tmp_path}"):
        trace("absent.csv")
