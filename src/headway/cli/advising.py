"""The three questions of ``headway advise``: each gives an answer to print, save and draw."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TextIO

from headway.cli.machine import Simulated
from headway.errors import UsageError
from headway.planning.advice import advise
from headway.planning.advice_page import advice_page
from headway.planning.advice_shown import advice_as_text, advice_to_json, write_advice_csv
from headway.planning.fleets import PROMISED_SHARE
from headway.planning.isolation import isolate
from headway.planning.isolation_page import isolation_page
from headway.planning.isolation_shown import (
    isolation_as_text,
    isolation_to_json,
    write_isolation_csv,
)
from headway.planning.trade import trade
from headway.planning.trade_page import trade_page
from headway.planning.trade_shown import trade_as_text, trade_to_json, write_trade_csv
from headway.profiles.shape import StepCost
from headway.report.report import Fact
from headway.sim.replica import Machine
from headway.workload import Workload, WorkloadSpec, build

#: of a workload that is drawn, unless --seeds says otherwise
_SEEDS = 3

MakePage = Callable[[str, Mapping[str, Fact], Sequence[str]], str]
"""Makes a page of title, facts and warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a question, in each form.

    Attributes:
        title: for people.
        value: for programs.
        facts: how it was simulated.
        warnings: reasons to trust it less.
        text: makes the text.
        page: makes the page.
        csv: writes the rows.
    """

    title: str
    value: Mapping[str, Any]
    facts: Mapping[str, Fact]
    warnings: Sequence[str] = field(default=())
    text: Callable[[], str]
    page: MakePage
    csv: Callable[[TextIO], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about: the flags, the workload, the machine, and its costs as they are used."""

    args: argparse.Namespace
    spec: WorkloadSpec
    simulated: Simulated
    cost: StepCost

    @property
    def instances(self) -> int:
        """How many there are at present."""
        return self.args.replicas or 1

    def machines(self, count: int, seed: int) -> list[Machine]:
        """Return new instances."""
        return self.simulated.replicas(count, self.cost, seed)

    def workloads(self) -> tuple[Mapping[int, Workload], Mapping[int, Workload]]:
        """Return a workload for each seed to choose with, and as many others to check the choice.

        One and none, if nothing is drawn.

        Raises:
            UsageError: several are asked for in vain.
        """
        first, number = self.spec.seed, self.args.seeds or _SEEDS
        built = cache(lambda seed: build(replace(self.spec, seed=seed)))
        is_same = built(first).arrivals == built(first + 1).arrivals
        if is_same and self.simulated.interference is None:
            if (self.args.seeds or 1) > 1:
                raise UsageError("--seeds: nothing is drawn here, so that all give the same")
            return {first: built(first)}, {}
        chosen, others = range(first, first + number), range(first + number, first + 2 * number)
        return {seed: built(seed) for seed in chosen}, {seed: built(seed) for seed in others}

    def facts(self, **more: Fact) -> dict[str, Fact]:
        """Return how it is simulated."""
        from headway import __version__

        limits = self.simulated.machine.config.limits
        return {
            "model_id": self.simulated.name,
            "step_costs": self.simulated.source,
            "workload": self.args.workload,
            "seed": self.spec.seed,
            **more,
            "policy": self.simulated.machine.config.policy.name.value,
            "num_kv_blocks": limits.num_blocks,
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "headway_version": __version__,
        }


def on_batching(question: Question) -> Answer:
    """Whether batching is the right tool, and which mode pays."""
    found = advise(
        replace(question.simulated.machine, cost=question.cost),
        build(question.spec),
        lambda: question.machines(1, question.spec.seed)[0],
        hard=question.args.hard,
    )
    return Answer(
        title=f"Whether to batch: {question.simulated.name}",
        value=advice_to_json(found),
        facts=question.facts(),
        text=partial(advice_as_text, found),
        page=partial(advice_page, found),
        csv=partial(write_advice_csv, found),
    )


def on_trade(question: Question) -> Answer:
    """What a larger batch and one more instance buy."""
    workloads, others = question.workloads()
    found = trade(
        question.machines,
        workloads,
        question.instances,
        others=others,
        window_s=question.args.window_s,
        tell=_tell,
    )
    return Answer(
        title=f"Batches or instances: {question.instances} x {question.simulated.name}",
        value=trade_to_json(found),
        facts=_of_fleet(question, found.num_seeds),
        warnings=found.left_out,
        text=partial(trade_as_text, found),
        page=partial(trade_page, found),
        csv=partial(write_trade_csv, found),
    )


def on_isolation(question: Question) -> Answer:
    """One pool for all classes, or one of its own for each."""
    workloads, others = question.workloads()
    found = isolate(question.machines, workloads, question.instances, others=others, tell=_tell)
    left_out = f"{found.num_left_out} divisions further from the work of the classes are left out"
    return Answer(
        title=f"One pool or several: {question.instances} x {question.simulated.name}",
        value=isolation_to_json(found),
        facts=_of_fleet(question, found.num_seeds),
        warnings=[left_out] if found.num_left_out else [],
        text=partial(isolation_as_text, found),
        page=partial(isolation_page, found),
        csv=partial(write_isolation_csv, found),
    )


def _of_fleet(question: Question, num_seeds: int) -> dict[str, Fact]:
    return question.facts(
        num_seeds=num_seeds,
        num_replicas=question.instances,
        router="least-loaded",
        promised_share=PROMISED_SHARE,
    )


def _tell(what: str) -> None:
    print(f"headway: {what}", file=sys.stderr)
