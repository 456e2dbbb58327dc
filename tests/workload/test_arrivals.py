"""Arrivals: drawn by seed, stretched, merged, checked."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from headway.workload import (
    Arrival,
    WorkloadError,
    at_rate,
    before,
    drawn_between,
    drawn_from,
    in_order,
    merged,
    poisson_arrivals,
    rate_of,
    stretched,
)


def at(*times: float, tenant: str = "") -> list[Arrival]:
    return [Arrival(at_s=t, prompt_tokens=1, output_tokens=1, tenant=tenant) for t in times]


def test_poisson_arrivals_have_the_rate_and_the_spread_of_their_process() -> None:
    arrivals = poisson_arrivals(5.0, [(10, 20)] * 20_000, Random(1), tenant="a")
    assert rate_of(arrivals) == pytest.approx(5.0, rel=0.03)
    gaps = [b.at_s - a.at_s for a, b in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)  # as of an exponential distribution
    assert {(a.prompt_tokens, a.output_tokens, a.tenant) for a in arrivals} == {(10, 20, "a")}


def test_the_seed_decides_everything() -> None:
    def drawn(seed: int) -> list[Arrival]:
        random = Random(seed)
        return poisson_arrivals(2.0, drawn_between((1, 9), (5, 6), random), random, duration_s=50)

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert all(a.at_s < 50 and a.prompt_tokens < 10 and a.output_tokens in (5, 6) for a in drawn(1))


def test_prompt_and_answer_are_drawn_together() -> None:
    pairs = drawn_from([(1, 10), (2, 20)], Random(3))
    drawn = {next(pairs) for _ in range(50)}
    assert drawn == {(1, 10), (2, 20)}


def test_a_rate_is_reached_by_stretching() -> None:
    arrivals = at(1.0, 2.0, 4.0)
    assert rate_of(arrivals) == pytest.approx(2 / 3)
    faster = at_rate(arrivals, 2.0)
    assert [each.at_s for each in faster] == pytest.approx([1 / 3, 2 / 3, 4 / 3])
    assert [each.at_s for each in stretched(arrivals, 2)] == [2.0, 4.0, 8.0]


def test_workloads_are_merged_ordered_and_cut_by_time() -> None:
    both = merged(at(0, 2, 4, tenant="a"), at(1, 2, tenant="b"))
    assert [(each.at_s, each.tenant) for each in both] == [
        (0, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
        (4, "a"),
    ]
    assert in_order(reversed(both))[0].at_s == 0
    assert len(before(both, 2)) == 2


def test_numbers_that_make_no_workload_are_refused() -> None:
    with pytest.raises(WorkloadError, match="rate must be above 0"):
        poisson_arrivals(0, [(1, 1)], Random(1))
    with pytest.raises(WorkloadError, match="rate must be above 0"):
        at_rate(at(0, 1), -1)
    with pytest.raises(WorkloadError, match="have no rate"):
        rate_of(at(1, 1))
    with pytest.raises(WorkloadError, match="stretched by 0"):
        stretched(at(1), 0)
    with pytest.raises(WorkloadError, match="at_s"):
        at(-1)
    with pytest.raises(WorkloadError, match="at_s"):
        at(float("nan"))
    with pytest.raises(WorkloadError, match="beyond max_tokens"):
        Arrival(at_s=0, prompt_tokens=1, output_tokens=5, max_tokens=4)
