"""The ramp finds the knee of servers whose knee is known."""

from __future__ import annotations

import pytest

from headway.bench import TargetError, climb
from headway.report import RampStep


def step(rate: float, completed: float, goodput: float) -> RampStep:
    return RampStep(
        request_rate=rate,
        request_throughput=completed,
        output_throughput=completed * 10,
        goodput=goodput,
        attained=goodput / rate,
        p99_ttft_s=None,
        p99_tpot_s=None,
    )


async def test_throughput_levels_off_at_the_knee() -> None:
    async def measure(rate: float) -> RampStep:
        return step(rate, min(rate, 10.0), 0.0)

    found = await climb(measure, 1.0, 2.0, by_goodput=False)
    assert [each.request_rate for each in found.steps] == [1, 2, 4, 8, 16, 32, 64]
    assert found.knee == 16  # the first that brings all there is


async def test_goodput_falls_behind_the_knee() -> None:
    async def measure(rate: float) -> RampStep:
        return step(rate, min(rate, 10.0), rate if rate <= 6 else 1.0)

    found = await climb(measure, 1.0, 2.0, by_goodput=True)
    assert [each.request_rate for each in found.steps] == [1, 2, 4, 8, 16]
    assert found.knee == 4


async def test_one_bad_step_is_not_the_end() -> None:
    async def measure(rate: float) -> RampStep:
        return step(rate, 0.0 if rate == 4 else min(rate, 20.0), 0.0)

    found = await climb(measure, 1.0, 2.0, by_goodput=False)
    assert found.knee == 32


async def test_a_server_that_serves_nothing_ends_it_soon() -> None:
    async def measure(rate: float) -> RampStep:
        return step(rate, 0.0, 0.0)

    found = await climb(measure, 3.0, 2.0, by_goodput=False)
    assert len(found.steps) == 2
    assert found.knee == 3.0


async def test_a_ramp_that_was_stopped_has_no_knee() -> None:
    async def measure(rate: float) -> RampStep | None:
        return step(rate, rate, rate) if rate < 4 else None

    found = await climb(measure, 1.0, 2.0, by_goodput=False)
    assert (len(found.steps), found.knee) == (2, None)


async def test_no_ramp_goes_on_for_ever() -> None:
    async def measure(rate: float) -> RampStep:
        return step(rate, rate, rate)

    found = await climb(measure, 1.0, 1.1, by_goodput=False)
    assert len(found.steps) == 40
    assert found.knee is None


@pytest.mark.parametrize(("first", "factor"), [(0.0, 2.0), (-1.0, 2.0), (1.0, 1.0), (1.0, 0.5)])
async def test_numbers_that_make_no_ramp_are_refused(first: float, factor: float) -> None:
    async def measure(rate: float) -> RampStep:
        raise AssertionError

    with pytest.raises(TargetError, match="a ramp begins above 0"):
        await climb(measure, first, factor, by_goodput=False)
