"""Numbers of a simulation that several experiments show."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from headway.metrics.quantiles import quantile
from headway.sim import RequestRecord, SimulationResult


def p99_tpot_s(result: SimulationResult) -> float:
    """Return the p99 of the time per further token, one value a request."""
    return _quantile((each.tpot_s for each in result.requests), 0.99)


def of_ttfts(records: Iterable[RequestRecord], share: float) -> float:
    """Return a quantile of times to the first token."""
    return _quantile((each.ttft_s for each in records), share)


def of_gaps(records: Iterable[RequestRecord], share: float) -> float:
    """Return a quantile of all gaps between two tokens."""
    return _quantile((gap for each in records for gap in each.gaps_s()), share)


def running(result: SimulationResult) -> float:
    """Return how many sequences run at once, on average over the time in which others wait."""
    return fmean(each.num_running for each in result.samples if each.num_waiting)


def recomputed(result: SimulationResult) -> float:
    """Return the share of the computed positions that had been computed before."""
    computed = sum(result.steps.num_tokens)
    needed = sum(
        each.arrival.prompt_tokens + len(each.token_times) - 1
        for each in result.requests
        if each.token_times
    )
    return 1 - needed / computed


def _quantile(values: Iterable[float | None], share: float) -> float:
    return quantile([value for value in values if value is not None], share)
