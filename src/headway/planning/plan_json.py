"""A plan as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from headway.planning.arithmetic import Arithmetic
from headway.planning.choices import Choice
from headway.planning.plan import Plan
from headway.planning.trial import AimResult, TrialResult
from headway.planning.trials import Terms


def plan_as_json(plan: Plan, terms: Terms) -> dict[str, Any]:
    """Return all that a plan says; times are in seconds, what is infinite is null."""
    value: dict[str, Any] = {
        "meetable": True,
        "holds": plan.holds,
        "terms": asdict(terms),
        "instances": plan.chosen.setup.instances,
        "arithmetic": _arithmetic(plan.arithmetic),
        "chosen": choice_as_json(plan.chosen),
        "reasons": list(plan.reasons),
        "others": [choice_as_json(each) for each in plan.others],
        "loads": [{"factor": 1.0, **result_as_json(plan.chosen.result)}]
        + [{"factor": each.factor, **result_as_json(each.result)} for each in plan.loads],
        "binding": asdict(plan.binding),
    }
    return {key: finite(each) for key, each in value.items()}


def choice_as_json(choice: Choice) -> dict[str, Any]:
    """Return a setup and what came of it."""
    return {
        "instances": choice.setup.instances,
        **asdict(choice.setup.batch),
        "worst_of_limit": choice.risk,
        **result_as_json(choice.result),
    }


def result_as_json(result: TrialResult) -> dict[str, Any]:
    """Return what came of a trial."""
    return {
        **_chance(result),
        "targets": [_aim(each) for each in result.aims],
        "load": asdict(result.load),
    }


def _chance(found: TrialResult | AimResult) -> dict[str, Any]:
    chance = found.chance
    return {
        "held": chance.held,
        "of": chance.of,
        "chance": chance.share,
        "interval": list(chance.interval()),
    }


def _aim(found: AimResult) -> dict[str, Any]:
    return {**asdict(found.aim), **_chance(found), "by_day_s": list(found.by_day)}


def _arithmetic(found: Arithmetic) -> dict[str, Any]:
    value = asdict(found)
    if found.memory is not None:
        value["memory"] |= {
            "token_bytes": found.memory.token_bytes,
            "ungrouped_token_bytes": found.memory.ungrouped_token_bytes,
        }
    return value


def finite(value: Any) -> Any:
    """Return values with null in place of what is not finite, which JSON lacks."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value
