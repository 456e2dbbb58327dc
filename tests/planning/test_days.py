"""Resampled days keep what a recording has: its rate, its bursts, and what belongs together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.request import PromptHashes
from headway.planning.days import RecordedDays, SpecDays, most_promised
from headway.workload import (
    Arrival,
    ClosedLoop,
    Stream,
    Targets,
    Workload,
    WorkloadError,
    WorkloadSpec,
    build,
)

TARGETS = {"*": Targets(ttft_s=1.0)}


def recording(times: list[float], duration_s: float = inf) -> Workload:
    arrivals = [
        Arrival(
            at_s=at_s,
            prompt_tokens=n + 1,
            output_tokens=2 * n + 1,
            class_name=f"class {n % 3}",
            tenant=f"tenant {n % 5}",
            hashes=PromptHashes(16, (0, n + 1)),
        )
        for n, at_s in enumerate(sorted(times))
    ]
    return Workload(arrivals, (), duration_s, TARGETS)


def bursts(seed: int, duration_s: float = 1000.0) -> Workload:
    """About once in 20 s, 5 requests a second for two seconds."""
    random = Random(seed)
    starts = [duration_s * random.random() for _ in range(int(duration_s / 20))]
    times = [start + 2 * random.random() for start in starts for _ in range(10)]
    return recording([each for each in times if each < duration_s], duration_s)


def dispersion(workload: Workload, window_s: float) -> float:
    counts = [0] * int(workload.duration_s / window_s)
    for each in workload.arrivals:
        if each.at_s < len(counts) * window_s:
            counts[int(each.at_s / window_s)] += 1
    return pvariance(counts) / fmean(counts)


@given(
    times=st.lists(st.floats(0, 99.9), min_size=1, max_size=40),
    duration_s=st.floats(1, 300),
    piece_s=st.floats(1, 100),
    twice=st.booleans(),
    seed=st.integers(0, 9),
)
def test_each_arrival_of_a_day_is_one_of_the_recording_at_another_time(
    times: list[float], duration_s: float, piece_s: float, twice: bool, seed: int
) -> None:
    recorded = recording(times, 100.0)
    source = RecordedDays(recorded, duration_s, piece_s, twice)
    (day,) = source.draw(1, seed)
    assert day.duration_s == duration_s
    assert day.targets == TARGETS
    assert all(one.at_s <= other.at_s for one, other in pairwise(day.arrivals))
    assert all(0 <= each.at_s <= duration_s for each in day.arrivals)
    for each in day.arrivals:
        original = recorded.arrivals[each.prompt_tokens - 1]
        assert replace(each, at_s=original.at_s, hashes=original.hashes) == original


def test_days_have_the_rate_of_the_recording_on_average() -> None:
    recorded = bursts(0)
    for twice in (False, True):
        counts = [len(day.arrivals) for day in RecordedDays(recorded, twice=twice).draw(100, 1)]
        assert fmean(counts) == pytest.approx(len(recorded.arrivals), rel=0.05)


def test_days_are_as_bursty_as_the_recording_at_the_length_of_its_bursts() -> None:
    recorded = bursts(0)
    for window_s in (1.0, 2.0, 5.0):
        drawn = fmean(dispersion(day, window_s) for day in RecordedDays(recorded).draw(40, 1))
        assert drawn == pytest.approx(dispersion(recorded, window_s), rel=0.1)
        assert drawn > 2.5  # Poisson has 1


def test_pieces_shorter_than_bursts_lose_them() -> None:
    recorded = bursts(0)
    (torn,) = RecordedDays(recorded, piece_s=0.1).draw(1, 1)
    assert dispersion(torn, 5.0) < dispersion(recorded, 5.0) / 3


def test_a_recording_that_is_resampled_first_makes_days_that_differ_more() -> None:
    recorded = bursts(0)

    def spread(twice: bool) -> float:
        return pvariance(
            [len(day.arrivals) for day in RecordedDays(recorded, twice=twice).draw(150, 2)]
        )

    assert spread(True) == pytest.approx(2 * spread(False), rel=0.5)


def test_days_are_the_same_for_a_seed_and_any_count() -> None:
    recorded = RecordedDays(bursts(0))
    few, many = list(recorded.draw(2, 7)), list(recorded.draw(5, 7))
    assert many[:2] == few
    assert len({tuple(each.at_s for each in day.arrivals) for day in many}) == 5
    assert next(recorded.draw(1, 8)) != few[0]


def test_copies_of_a_request_share_their_beginning_with_copies_alone() -> None:
    recorded = recording([1.0, 2.0, 3.0, 4.0], 5.0)
    (day,) = RecordedDays(recorded, duration_s=100.0, piece_s=5.0).draw(1, 0)
    shared, whole = zip(*[each.hashes.ids for each in day.arrivals if each.hashes], strict=True)
    assert len(set(whole)) == len(day.arrivals)  # no prompt is computed before it came
    assert len(set(shared)) == max(
        sum(each.prompt_tokens == number for each in day.arrivals) for number in (1, 2, 3, 4)
    )


def test_the_end_of_a_recording_that_doesn_t_say_it_is_a_mean_gap_after_the_last() -> None:
    assert RecordedDays(recording([0.0, 10.0, 20.0])).recorded_s == 30.0
    assert RecordedDays(recording([0.0, 10.0, 20.0], 40.0)).recorded_s == 40.0


@pytest.mark.parametrize(("num_recorded", "most"), [(1, 0.5), (19, 0.95), (inf, 1.0)])
def test_what_a_recording_can_promise_is_how_seldom_a_day_is_beyond_all_of_it(
    num_recorded: float, most: float
) -> None:
    assert most_promised(num_recorded) == pytest.approx(most)
    recorded = recording([1.0, 2.0], 57.0)
    assert RecordedDays(recorded).num_recorded == 1.0
    assert RecordedDays(recorded, duration_s=3.0).num_recorded == 19.0


def test_what_can_not_be_resampled_is_refused() -> None:
    loop = ClosedLoop(1, 0.0, 0.0, iter(()))
    one = recording([1.0, 2.0])
    for bad, said in (
        (Workload(one.arrivals, (loop,), inf, {}), "closed"),
        (Workload((), (), inf, {}), "without requests"),
        (recording([0.0, 0.0]), "single moment"),
    ):
        with pytest.raises(WorkloadError, match=said):
            RecordedDays(bad)
    with pytest.raises(WorkloadError, match="longer than the recording"):
        RecordedDays(one, piece_s=100.0)
    with pytest.raises(WorkloadError, match="duration_s must be above 0"):
        RecordedDays(one, duration_s=0.0)


# ------------------------------------------------------------- of specs


def trace_file(tmp_path, times: list[float]) -> str:
    rows = ["at_s,prompt_tokens,output_tokens", *(f"{each},10,3" for each in times)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_days_of_rates_and_lengths_are_other_seeds() -> None:
    spec = WorkloadSpec(streams=(Stream(request_rate=5.0),), duration_s=20.0, targets=TARGETS)
    first, second = SpecDays(spec).draw(2, 3)
    assert first != second
    assert first == next(SpecDays(spec).draw(1, 3))
    assert first.targets == TARGETS
    assert SpecDays(spec).num_recorded == inf
    assert all(each.at_s < 20.0 for each in first.arrivals)


def test_closed_loops_are_drawn_anew_each_day() -> None:
    spec = WorkloadSpec(
        streams=(Stream(concurrency=2, output_tokens="uniform:1:900"),), duration_s=9
    )
    first, second = SpecDays(spec).draw(2, 3)
    lengths = [[next(d.loops[0].requests).output_tokens for _ in range(5)] for d in (first, second)]
    assert lengths[0] != lengths[1]


def test_traces_are_resampled_beside_streams_that_are_drawn(tmp_path) -> None:
    path = trace_file(tmp_path, [float(n) for n in range(100)])
    trace = Stream(source="csv", path=path, class_name="recorded")
    drawn = Stream(request_rate=1.0, class_name="drawn")
    spec = WorkloadSpec(streams=(drawn, trace), duration_s=40.0)
    assert max(each.at_s for each in build(spec).arrivals) < 40
    assert SpecDays(spec).num_recorded == pytest.approx(100 / 40)
    for day in SpecDays(spec, piece_s=10.0).draw(3, 0):
        by_class = [each.class_name for each in day.arrivals]
        assert 39 <= by_class.count("recorded") <= 41  # one a second, from all of the trace
        assert 15 < by_class.count("drawn") < 70
        assert all(one.at_s <= other.at_s for one, other in pairwise(day.arrivals))
        assert day.duration_s == 40.0


def test_all_of_a_trace_is_measured_with_drawn_days_beside_it(tmp_path) -> None:
    path = trace_file(tmp_path, [float(n) for n in range(100)])
    trace = Stream(source="csv", path=path, class_name="recorded")
    drawn = Stream(process="constant", request_rate=0.5, class_name="drawn")
    for duration_s in (7.0, 40.0, 400.0):
        spec = WorkloadSpec(streams=(drawn, trace), duration_s=duration_s, targets=TARGETS)
        measured = SpecDays(spec).measured()
        classes = Counter(each.class_name for each in measured.arrivals)
        assert measured.duration_s == pytest.approx(100)
        assert classes["recorded"] == 100
        assert classes["drawn"] == pytest.approx(50, rel=0.2)  # as many a second as on each day
        assert all(one.at_s <= other.at_s < 100 for one, other in pairwise(measured.arrivals))
        alone = SpecDays(replace(spec, streams=(trace,))).measured()
        assert alone.arrivals == build(replace(spec, streams=(trace,), duration_s=None)).arrivals
        by_seed = replace(spec, streams=(drawn,), seed=5)
        assert SpecDays(by_seed).measured() == build(by_seed)


def test_lengths_of_a_trace_with_times_of_its_own_are_drawn(tmp_path) -> None:
    path = trace_file(tmp_path, [0.0, 1.0])
    stream = Stream(source="csv", path=path, process="poisson", request_rate=3.0)
    first, second = SpecDays(WorkloadSpec(streams=(stream,), duration_s=10.0)).draw(2, 0)
    assert [each.at_s for each in first.arrivals] != [each.at_s for each in second.arrivals]
