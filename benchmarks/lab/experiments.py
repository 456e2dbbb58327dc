"""All experiments of the lab, by the name of their page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.lab import (
    capacity_page,
    chunks,
    concurrency,
    decode_and_prefill,
    static_and_continuous,
    symptoms,
    three_knobs,
    two_limits,
)
from benchmarks.lab.bench import Bench
from benchmarks.lab.page import Measurement, Page


@dataclass(frozen=True, slots=True)
class Measured:
    """An experiment that a real executor runs, and a simulated one by the same code.

    Attributes:
        measure: runs it on a bench, so many times.
        outcome: the type of what it returns.
        page: made from what was measured and what was simulated.
    """

    measure: Callable[[Bench, int], Any]
    outcome: type
    page: Callable[[Measurement[Any], Any], Page]


MEASURED = {
    "1-decode-and-prefill": Measured(
        decode_and_prefill.measure, decode_and_prefill.Outcome, decode_and_prefill.page
    ),
    "2-static-and-continuous": Measured(
        static_and_continuous.measure, static_and_continuous.Outcome, static_and_continuous.page
    ),
    "3-two-limits": Measured(two_limits.measure, two_limits.Outcome, two_limits.page),
    "4-chunked-prefill": Measured(chunks.measure, chunks.Outcome, chunks.page),
}
#: on a virtual clock alone: the same on every machine
SIMULATED: dict[str, Callable[[], Page]] = {
    "5-concurrency-and-kv": concurrency.experiment,
    "6-targets-before-the-batch": capacity_page.experiment,
    "three-knobs": three_knobs.experiment,
    "symptoms": symptoms.experiment,
}
NAMES = (*MEASURED, *SIMULATED)
