"""Turning a knob: what is said of it, what is measured, and whether it is so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from benchmarks.knob.measures import Measure
from benchmarks.knob.scenarios import COST, Scenario, Turn
from headway.sim import SimulationResult, simulate

#: a change of less than this part is none
TOLERANCE = 0.02


class Trend(StrEnum):
    """How a measure goes as the knob is turned from the first value to the last."""

    RISES = "rises"
    FALLS = "falls"
    STAYS = "stays"

    def holds(self, values: Sequence[float]) -> bool:
        """Whether the last value differs from the first so, and no step goes the other way."""
        sign = {Trend.RISES: 1, Trend.FALLS: -1}.get(self)
        scale = max(map(abs, values)) or 1.0
        first, last = values[0], values[-1]
        if sign is None:
            return max(values) - min(values) <= 5 * TOLERANCE * scale
        steps = (sign * (b - a) for a, b in pairwise(values))
        return sign * (last - first) > TOLERANCE * scale and all(
            step >= -TOLERANCE * scale for step in steps
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """What a knob is said to do to a measure. ``trend`` None: it is shown, and nothing is said."""

    scenario: Scenario
    measure: Measure
    trend: Trend | None = None


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting that is turned alone.

    Attributes:
        name: the setting.
        values: from low to high, or in the order that is said to be from worse to better.
        turn: makes a configuration with a value.
        stated: what the source documents say.
        effects: what that comes to in numbers.
        note: what the numbers mean, where they need a word.
        shown: the values as text, where ``str`` won't do.
    """

    name: str
    values: tuple[Any, ...]
    turn: Turn
    stated: str
    effects: tuple[Effect, ...]
    note: str = ""
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One effect, measured. ``is_seen`` is None where nothing was said."""

    scenario: str
    measure: str
    values: tuple[float, ...]
    digits: int
    stated: str
    is_seen: bool | None


def turned(knob: Knob) -> tuple[Row, ...]:
    """Run every scenario of a knob with every value."""
    results: dict[str, list[SimulationResult]] = {}
    for effect in knob.effects:
        scenario = effect.scenario
        if scenario.name not in results:
            arrivals = scenario.arrivals()
            configs = [knob.turn(scenario.config, value) for value in knob.values]
            results[scenario.name] = [simulate(each, arrivals, COST) for each in configs]
    return tuple(_row(effect, results[effect.scenario.name]) for effect in knob.effects)


def _row(effect: Effect, results: Sequence[SimulationResult]) -> Row:
    values = tuple(effect.measure.of(result) for result in results)
    trend = effect.trend
    return Row(
        scenario=effect.scenario.name,
        measure=effect.measure.name,
        values=values,
        digits=effect.measure.digits,
        stated=trend.value if trend else "–",
        is_seen=trend.holds(values) if trend else None,
    )
