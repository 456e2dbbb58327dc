"""Arrival processes: their rate, how uneven they are, and rates that change."""

from __future__ import annotations

from itertools import islice, pairwise
from math import inf, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.workload import WorkloadError, parse_lengths
from headway.workload.processes import (
    at_rates,
    constant,
    exponential,
    gamma,
    parse_steps,
    steady,
    weibull,
)


def cv(gaps: list[float]) -> float:
    mean = sum(gaps) / len(gaps)
    return sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean


@pytest.mark.parametrize(
    ("gaps", "expected_cv"),
    [
        (exponential(Random(1)), 1.0),
        (gamma(Random(2), 0.5), 0.5),
        (gamma(Random(3), 3.0), 3.0),
        (weibull(Random(4), 1.0), 1.0),
        (weibull(Random(5), 2.0), 0.5227),  # sqrt(gamma(2) / gamma(1.5) ** 2 - 1)
        (constant(), 0.0),
    ],
)
def test_gaps_have_mean_1_and_their_spread(gaps, expected_cv: float) -> None:
    drawn = list(islice(gaps, 60_000))
    assert sum(drawn) / len(drawn) == pytest.approx(1.0, rel=0.05)
    assert cv(drawn) == pytest.approx(expected_cv, rel=0.05, abs=1e-9)


def test_a_steady_rate() -> None:
    times = list(islice(at_rates(exponential(Random(1)), steady(5.0)), 20_000))
    assert times[-1] == pytest.approx(4000, rel=0.03)
    assert cv([b - a for a, b in pairwise(times)]) == pytest.approx(1.0, rel=0.05)
    assert list(islice(at_rates(constant(), steady(4.0)), 3)) == [0.25, 0.5, 0.75]


def test_rates_change_in_steps_and_may_pause() -> None:
    steps = parse_steps("10:1,5:0,10:20")
    times = list(at_rates(exponential(Random(2)), steps))
    assert not [t for t in times if 10 <= t < 15]
    assert 2 <= len([t for t in times if t < 10]) <= 25
    assert 150 <= len([t for t in times if t >= 15]) <= 250
    assert all(t < 25 for t in times)
    exact = list(at_rates(constant(), ((2.0, 1.0), (2.0, 2.0))))
    assert exact == [1.0, 2.0, 2.5, 3.0, 3.5]


def test_an_infinite_rate_is_everything_at_once() -> None:
    assert list(islice(at_rates(exponential(Random(1)), steady(inf)), 3)) == [0.0, 0.0, 0.0]


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 20)), min_size=1, max_size=6),
    st.integers(0, 1000),
)
def test_times_are_in_order_and_inside_the_steps(steps, seed: int) -> None:
    times = list(at_rates(exponential(Random(seed)), steps))
    assert times == sorted(times)
    assert all(0 <= t <= sum(seconds for seconds, _ in steps) + 1e-9 for t in times)


@pytest.mark.parametrize("text", ["", "1", "1:", "1:2,", "a:b", "0:1", "-1:1", "1:-1", "inf:1"])
def test_what_is_no_steps_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="are no rates"):
        parse_steps(text)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(WorkloadError, match="rate must be above 0"):
        steady(rate)


def test_shapes_without_a_process_are_refused() -> None:
    with pytest.raises(WorkloadError, match="coefficient of variation"):
        next(gamma(Random(1), 0.0))
    with pytest.raises(WorkloadError, match="shape of a Weibull"):
        next(weibull(Random(1), -1.0))


# ------------------------------------------------------------------ lengths


def test_lengths_are_drawn_as_they_are_written() -> None:
    def drawn(text: str | int, count: int = 5000) -> list[int]:
        lengths, random = parse_lengths(text), Random(1)
        return [lengths.draw(random) for _ in range(count)]

    assert set(drawn(7)) == set(drawn("7")) == {7}
    assert set(drawn("uniform:3:5")) == {3, 4, 5}
    assert set(drawn("uniform:4:4")) == {4}
    lognormal = sorted(drawn("lognormal:200:0.8:1000"))
    assert lognormal[2500] == pytest.approx(200, rel=0.05)
    assert lognormal[-1] == 1000
    assert lognormal[4207] == pytest.approx(200 * 2.718**0.8, rel=0.1)  # one deviation up
    assert min(drawn("lognormal:1:5")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-3",
        "1.5",
        "x",
        "nan",
        "inf",
        "uniform",
        "uniform:1",
        "uniform:5:3",
        "uniform:1:2:3",
        "lognormal:10",
        "lognormal:10:0",
        "lognormal:0:1",
        "lognormal:10:1:5",
        "lognormal:10:inf",
        "normal:1:2",
        "1e99",
    ],
)
def test_what_is_no_length_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"is no length in tokens, .*: N, uniform:LOW:HIGH"):
        parse_lengths(text)
