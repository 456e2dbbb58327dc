"""A plan for people, as JSON, and as the settings that ``headway serve --config`` takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headway.cli.output import print_warnings
from headway.cli.plan_machine import Ground
from headway.cli.plan_source import Source
from headway.cli.reporting import write_value
from headway.config import Loaded, to_toml

if TYPE_CHECKING:
    from headway.planning.alone import Unmeetable
    from headway.planning.plan import Plan
    from headway.planning.trials import Terms


def report_unmeetable(args: argparse.Namespace, machine: str, lost: Sequence[Unmeetable]) -> int:
    """Say which targets no setup can meet, and the best that can; always 1."""
    from dataclasses import asdict

    value = {"meetable": False, "machine": machine, "unmeetable": [asdict(each) for each in lost]}
    write_value(args, value, text=lambda: "\n".join(_unmeetable(machine, lost)))
    return 1


def _unmeetable(machine: str, lost: Sequence[Unmeetable]) -> Iterator[str]:
    from headway.planning.describe import milliseconds

    yield f"these targets can't be met on {machine}: one request alone misses them"
    for each in lost:
        yield (
            f"  {each.class_name}: {each.target.upper()} p99 {milliseconds(each.limit_s)}, and the "
            f"best that can is {milliseconds(each.best_s)}"
        )


def report_plan(
    args: argparse.Namespace,
    ground: Ground,
    source: Source,
    plan: Plan,
    terms: Terms,
    router: str,
    warnings: Sequence[str],
) -> None:
    """Write the files that were asked for, and print."""
    from headway.planning.describe import assumptions
    from headway.planning.plan_json import plan_as_json

    interferes = ground.simulated.interference is not None
    assumed = list(assumptions(plan.arithmetic, router, interferes=interferes))
    loaded = ground.loaded_for(plan.chosen.setup.batch)
    text = settings_text(loaded, plan) if plan.holds else None
    value = {
        **plan_as_json(plan, terms),
        "machine": ground.simulated.name,
        "step_costs": ground.simulated.source,
        "router": str(router),
        "assumed": assumed,
        "warnings": [*ground.loaded.warnings, *warnings],
        "workload": source.as_json(),
        "settings": text,
    }
    lines = _lines(ground, plan, terms, assumed, text, args.write)
    written = () if text is None else ((args.write, lambda file: file.write(text)),)
    if text is None and args.write is not None:
        print_warnings([f"{args.write} is not written, since nothing holds"])
    write_value(args, value, text=lambda: "\n".join(lines), others=written)


def settings_text(loaded: Loaded, plan: Plan) -> str:
    """Return a settings file with what was set and planned, headed by what it is for."""
    from headway.planning.choices import counted
    from headway.planning.describe import chance_said

    number = plan.chosen.setup.instances
    head = (
        f"# of {'each of ' if number > 1 else ''}{counted(number, 'instance')}, by headway plan\n"
        f"# all targets hold on {chance_said(plan.chosen.result.chance)}\n\n"
    )
    return head + to_toml(loaded, without_defaults=True)


def _lines(
    ground: Ground,
    plan: Plan,
    terms: Terms,
    assumed: Sequence[str],
    text: str | None,
    written: str | None,
) -> Iterator[str]:
    from headway.planning.describe import steps
    from headway.planning.describe_plan import verified

    yield f"plan for {ground.simulated.name} ({ground.simulated.source})"
    yield ""
    yield from steps(plan.arithmetic)
    yield from verified(plan, terms)
    yield ""
    yield "assumed"
    yield from (f"  {each}" for each in assumed)
    yield ""
    if text is None:
        yield "there are no settings that hold"
    elif written is not None:
        yield f"settings written to {written}: headway serve --config {written}"
    else:
        yield "settings (--write FILE)"
        yield from ("  " + line for line in text.splitlines())
