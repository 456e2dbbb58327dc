"""How true the simulation of one's own engine is: calibrated, run and simulated, several times.

A machine's speed wanders, so what is judged takes turns with what the costs are fitted to: requests
of the same lengths that come in the opposite order. Nothing is fitted on the run that is judged,
and its rate comes from a calibration right before: what was nine tenths of saturation may be all of
it some minutes later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from headway.core.config import SchedulerConfig
from headway.errors import UsageError
from headway.metrics.quantiles import quantile
from headway.profiles.interference import costs_of_engine
from headway.profiles.profile import Profile
from headway.sim.records import RequestRecord
from headway.sim.simulation import simulate
from headway.workload import Arrival, at_rate

_CROWD = 1000
BOUND = 5.0
"""Percent by which simulations may differ from their runs, in the median."""


class Figure(NamedTuple):
    """One of what is compared, in seconds or tokens a second."""

    key: str
    title: str


FIGURES = (
    Figure("ttft_p50", "TTFT p50"),
    Figure("ttft_p99", "TTFT p99"),
    Figure("tpot_p50", "TPOT p50"),
    Figure("tpot_p99", "TPOT p99"),
    Figure("output_throughput", "output tokens/s"),
)

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure at one load: every repetition of both, and how far they differ.

    A repetition's costs are of the same minute as its run, so what is compared is each simulation
    with its own run.
    """

    figure: Figure
    real: Sequence[float]
    simulated: Sequence[float]

    @property
    def errors(self) -> list[float]:
        """By how much each simulation differs from its run, in percent."""
        pairs = zip(self.simulated, self.real, strict=True)
        return [100 * (simulated / real - 1) for simulated, real in pairs]

    @property
    def error(self) -> float:
        """Return the median of these."""
        return median(self.errors)

    @property
    def spread(self) -> float:
        """From the least to the most that was measured, in percent of the median."""
        return 100 * (max(self.real) - min(self.real)) / median(self.real)

    @property
    def holds(self) -> bool:
        """Whether it is close enough."""
        return abs(self.error) <= BOUND


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """One load, as a share of what saturates the engine; rates and requests by repetition.

    Rates are those at which requests came.
    """

    share: float
    rates: Sequence[float]
    nums_requests: Sequence[int]
    rows: tuple[Row, ...]


class _Run(NamedTuple):
    rate: float
    num_requests: int
    real: Figures
    simulated: Figures


Measure = Callable[[Sequence[Arrival], Sequence[Arrival]], tuple[Sequence[RequestRecord], Profile]]
"""Runs the first workload on the real engine, and the second in turn with it, to fit costs to."""


def judge(
    config: SchedulerConfig,
    lengths: Callable[[int], Sequence[Arrival]],
    *,
    calibrate: Callable[[], Profile],
    measure: Measure,
    shares: Sequence[float] = (0.5, 0.9),
    repetitions: int = 5,
    duration_s: float,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[LoadVerdict, ...]:
    """Calibrate, run, fitting in turn, and simulate, several times, and compare.

    Args:
        config: of both schedulers.
        lengths: gives each repetition, from 1 on, a workload of any pace, long enough for the
            duration at the highest rate.
        calibrate: measures the real engine, which is at rest.
        measure: runs a workload on it, and one to fit to in turn with it.
        shares: of the rate that saturates it.
        repetitions: how often.
        duration_s: of each run.
        tell: hears of the progress.

    Raises:
        UsageError: in that time no request comes.
    """
    runs: list[list[_Run]] = [[] for _ in shares]
    for number in range(1, repetitions + 1):
        requests = lengths(number)
        for share, earlier in zip(shares, runs, strict=True):
            tell(f"{number} of {repetitions}: calibrating, to find the rate that saturates")
            rate = share * saturating_rate(config, requests, calibrate())
            arrivals = _paced(requests, rate, duration_s)
            if not arrivals:
                raise UsageError(f"no request comes within {duration_s:g} s: take more time")
            tell(f"{number} of {repetitions}: {rate:.3g} requests/s, {len(arrivals)} of them")
            if len(arrivals) == len(requests):
                tell(f"there are no more requests, so the run is shorter than {duration_s:g} s")
            records, profile = measure(arrivals, _backwards(arrivals))
            came = [each.arrival for each in records]
            simulated = figures(run_simulated(config, came, profile))
            earlier.append(_Run(_rate_of(came), len(came), figures(records), simulated))
    return tuple(map(_verdict, shares, runs))


def run_simulated(
    config: SchedulerConfig, arrivals: Sequence[Arrival], profile: Profile
) -> Sequence[RequestRecord]:
    """Simulate what the real engine is to run."""
    host = None if profile.host is None else profile.host.seconds
    cost = costs_of_engine(profile.device, profile.interference)
    return simulate(config, arrivals, cost, host=host, sample_every_s=1e6).requests


def saturating_rate(config: SchedulerConfig, lengths: Sequence[Arrival], profile: Profile) -> float:
    """Return how many of these requests a second come out, by simulation, if all wait already.

    Taken between the first and the last quarter of them: the batch fills before, and empties after.
    """
    crowd = [_exact(each, 0.0) for each in lengths[:_CROWD]]
    limits = replace(config.limits, max_queue_requests=None, max_queue_tokens=None)
    records = run_simulated(replace(config, limits=limits), crowd, profile)
    ended = sorted(each.ended_at for each in records if each.ended_at and each.is_finished)
    first, last = len(ended) // 4, 3 * len(ended) // 4
    return (last - first) / (ended[last] - ended[first])


def figures(records: Sequence[RequestRecord]) -> Figures:
    """Return the figures of a run in which every request ended well.

    Raises:
        ValueError: one did not.
    """
    lost = [each for each in records if not each.is_finished]
    if lost:
        raise ValueError(f"{len(lost)} of {len(records)} requests did not end well")
    ttfts = [each.ttft_s or 0.0 for each in records]
    tpots = [each.tpot_s for each in records if each.tpot_s is not None]
    num_tokens = sum(len(each.token_times) for each in records)
    return {
        "ttft_p50": quantile(ttfts, 0.5),
        "ttft_p99": quantile(ttfts, 0.99),
        "tpot_p50": quantile(tpots, 0.5),
        "tpot_p99": quantile(tpots, 0.99),
        "output_throughput": num_tokens / max(each.ended_at or 0.0 for each in records),
    }


def _paced(lengths: Sequence[Arrival], rate: float, duration_s: float) -> list[Arrival]:
    """Return the workload at a rate, as far as it comes within the duration."""
    paced = at_rate(lengths, rate)
    return [_exact(each, each.at_s) for each in paced if each.at_s < duration_s]


def _rate_of(arrivals: Sequence[Arrival]) -> float:
    """Return how many a second came: fewer than were planned, where the machine was slower."""
    return len(arrivals) / arrivals[-1].at_s


def _backwards(arrivals: Sequence[Arrival]) -> list[Arrival]:
    end_s = arrivals[-1].at_s
    return [replace(each, at_s=end_s - each.at_s) for each in reversed(arrivals)]


def _exact(arrival: Arrival, at_s: float) -> Arrival:
    """Return a request whose client asks for just as many tokens as it gets."""
    return replace(arrival, at_s=at_s, max_tokens=arrival.output_tokens)


def _verdict(share: float, runs: Sequence[_Run]) -> LoadVerdict:
    rows = tuple(
        Row(
            figure,
            [each.real[figure.key] for each in runs],
            [each.simulated[figure.key] for each in runs],
        )
        for figure in FIGURES
    )
    return LoadVerdict(share, [run.rate for run in runs], [run.num_requests for run in runs], rows)
