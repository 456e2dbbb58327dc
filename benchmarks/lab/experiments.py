"""All experiments of the lab, by the name of their page."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lab import capacity_page, concurrency
from benchmarks.lab.page import Page

#: on a virtual clock: the same on every machine
SIMULATED: dict[str, Callable[[], Page]] = {
    "5-concurrency-and-kv": concurrency.experiment,
    "6-targets-before-the-batch": capacity_page.experiment,
}
