"""A plan on a live server: what the load test measured, beside what was simulated and promised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from headway.errors import UsageError
from headway.planning.trial import Aim, figure_s
from headway.report import Record
from headway.workload import Targets


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: the figure of the live run in seconds, and those of the simulated days.

    ``simulated`` is empty where this load was not simulated; a figure that is infinite is that of
    requests which were not served.
    """

    aim: Aim
    measured_s: float | None
    simulated: tuple[float, ...]

    @property
    def held(self) -> bool:
        """Whether the live run kept it."""
        return self.aim.holds(self.measured_s)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan says of a load: days on which all targets held, and the figures of each."""

    held: int
    of: int
    figures: Mapping[tuple[str, str], tuple[float, ...]]


def verdicts(
    records: Sequence[Record], aims: Iterable[Aim], expected: Expected | None
) -> list[Verdict]:
    """Judge a live run by each target."""
    found = []
    for aim in aims:
        group = [each for each in records if each.class_name == aim.class_name]
        simulated = {} if expected is None else expected.figures
        figures = simulated.get((aim.class_name, aim.metric), ())
        found.append(Verdict(aim, figure_s(group, aim), tuple(figures)))
    return found


# ------------------------------------------------------------- the plan as it was written


def aims_of_plan(plan: Mapping[str, Any]) -> list[Aim]:
    """Return the targets that a plan was judged by.

    Raises:
        UsageError: it is no plan of ``headway plan --output``, or it holds nothing.
    """
    try:
        if not plan["meetable"]:
            raise UsageError("that plan says that its targets can't be met: there is none to test")
        return [
            Aim(each["class_name"], each["metric"], each["limit_s"], each["share"])
            for each in plan["chosen"]["targets"]
        ]
    except (KeyError, TypeError) as error:
        raise UsageError(f"that is no plan of headway plan --output: it lacks {error}") from error


def targets_of(aims: Iterable[Aim]) -> dict[str, Targets]:
    """Return the targets of each class."""
    found: dict[str, dict[str, float]] = {}
    for aim in aims:
        found.setdefault(aim.class_name, {})[f"{aim.metric}_s"] = aim.limit_s
    return {name: Targets(**values) for name, values in found.items()}


def expected_at(plan: Mapping[str, Any], factor: float) -> Expected | None:
    """Return what the plan's simulation said of a load; None if it was not tried."""
    for each in plan["loads"]:
        if abs(each["factor"] - factor) < _SAME:
            figures = {
                (found["class_name"], found["metric"]): _figures(found) for found in each["targets"]
            }
            return Expected(each["held"], each["of"], figures)
    return None


_SAME = 1e-6


def _figures(found: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the figures of the days; infinite on those that were lost without one.

    JSON has null for both "not served" and "nobody came", and only the former misses a target.
    """
    figures = [each for each in found["by_day_s"] if each is not None]
    num_late = sum(each > found["limit_s"] for each in figures)
    num_lost = found["of"] - found["held"] - num_late
    return (*figures, *[inf] * num_lost)
