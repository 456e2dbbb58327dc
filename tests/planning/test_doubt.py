"""A plan says when it can't promise what it is asked to."""

from __future__ import annotations

import pytest

from headway.planning.days import RecordedDays, SpecDays
from headway.planning.doubt import doubts
from headway.planning.trials import Terms
from headway.workload import Arrival, Stream, Workload, WorkloadSpec


def recorded(num_days: float) -> RecordedDays:
    arrivals = [Arrival(at_s=n, prompt_tokens=1, output_tokens=1) for n in range(60)]
    return RecordedDays(Workload(arrivals, (), 60.0, {}), duration_s=60.0 / num_days)


@pytest.mark.parametrize(
    ("recorded_days", "num_days", "promise", "said"),
    [
        (19, 19, 0.95, []),
        (9, 40, 0.9, []),
        (1, 40, 0.95, ["is 1 day long, by which 50.0% can be promised at most"]),
        (18, 40, 0.95, ["for 95% record 19 days"]),
        (
            30,
            18,
            0.95,
            ["18 simulated days can promise 94.7% at most: for 95% make them 19 or more"],
        ),
        (30, 4, 0.95, ["4 simulated days can promise 80.0% at most"]),
        (2, 1, 0.9, ["2 days long", "1 simulated day can"]),
    ],
)
def test_what_is_too_little_for_a_promise_is_said(
    recorded_days: float, num_days: int, promise: float, said: list[str]
) -> None:
    found = list(doubts(recorded(recorded_days), Terms(num_days=num_days, promise=promise)))
    assert len(found) == len(said)
    assert all(part in whole for part, whole in zip(said, found, strict=True))


def test_days_that_are_drawn_leave_nothing_to_record() -> None:
    drawn = SpecDays(WorkloadSpec(streams=(Stream(request_rate=1.0),), duration_s=1.0))
    assert list(doubts(drawn, Terms())) == []
