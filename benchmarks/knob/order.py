"""Knobs of the order: who goes first, how much of whom, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.knob import measures as m
from benchmarks.knob.scenarios import (
    CALM_AND_BATCH,
    HINTED_OVERLOAD,
    LONG_ANSWERS,
    OVERLOAD,
    TWO_CLASSES,
    Scenario,
    in_class,
    limit,
    policy,
    with_class,
)
from benchmarks.knob.turning import Effect, Knob, Trend
from headway.core.classes import PolicyName
from headway.core.config import SchedulerConfig

RISES, FALLS = Trend.RISES, Trend.FALLS
INTERACTIVE, BATCH = m.of_class("interactive"), m.of_class("batch")
SHORT_ANSWERS = m.with_answers_below(81)


def _by(scenario: Scenario, name: PolicyName, label: str, **fields: Any) -> Scenario:
    config = scenario.config
    made = replace(config, policy=replace(config.policy, name=name, **fields))
    return Scenario(f"{scenario.name}, {label}", made, scenario.arrivals)


_PRIORITY = _by(TWO_CLASSES, PolicyName.PRIORITY, "`priority`")
_SJF = _by(HINTED_OVERLOAD, PolicyName.SJF, "`sjf`")


def _one_class_or_two(config: SchedulerConfig, value: str) -> SchedulerConfig:
    """Give the batch class its own, bounded queue, or let both be equal."""
    if value == "one":
        return config
    return with_class(with_class(config, "interactive", weight=8), "batch", max_running_share=0.6)


KNOBS = (
    Knob(
        name="policy",
        values=(PolicyName.FCFS, PolicyName.SJF),
        turn=policy("name"),
        stated=(
            "`fcfs` is simple and fair, and long requests block short ones; `sjf` has the shorter "
            "mean wait, may starve long ones, and must guess the length."
        ),
        effects=(
            Effect(HINTED_OVERLOAD, m.wait(None), FALLS),
            Effect(HINTED_OVERLOAD, m.latency(0.5), FALLS),
            Effect(HINTED_OVERLOAD, m.wait(1.0), RISES),
        ),
    ),
    Knob(
        name="ageing_s",
        values=(5.0, 30.0, 240.0),
        turn=policy("ageing_s"),
        stated="Nobody may be passed without end: long requests must not starve.",
        effects=(
            Effect(_SJF, m.wait(1.0), RISES),
            Effect(_SJF, m.latency(0.5), FALLS),
        ),
    ),
    Knob(
        name="max_running_share",
        values=(0.5, 0.75, 1.0),
        turn=in_class("interactive", "max_running_share"),
        stated=(
            "Priority without a limit starves whoever is below; a capacity limit for the high "
            "class prevents it."
        ),
        effects=(
            Effect(_PRIORITY, m.wait(0.5, "of `interactive`", INTERACTIVE), FALLS),
            Effect(_PRIORITY, m.wait(0.5, "of `batch`", BATCH), RISES),
        ),
    ),
    Knob(
        name="min_running_share",
        values=(0.0, 0.25, 0.5),
        turn=in_class("batch", "min_running_share"),
        stated="A channel that others can't block.",
        effects=(
            Effect(_PRIORITY, m.wait(0.5, "of `batch`", BATCH), FALLS),
            Effect(_PRIORITY, m.wait(0.5, "of `interactive`", INTERACTIVE), RISES),
        ),
    ),
    Knob(
        name="priority_threshold",
        values=(None, 1),
        shown=("none", "1"),
        turn=policy("priority_threshold"),
        stated="High priority takes resources from running requests of low priority.",
        effects=(
            Effect(_PRIORITY, m.wait(0.99, "of `interactive`", INTERACTIVE), FALLS),
            Effect(_PRIORITY, m.PREEMPTIONS, RISES),
            Effect(_PRIORITY, m.latency(0.5, "of `batch`", BATCH), RISES),
        ),
    ),
    Knob(
        name="weight",
        values=(1.0, 4.0, 16.0),
        turn=in_class("interactive", "weight"),
        stated="Weighted turns instead of pure priority.",
        effects=(
            Effect(TWO_CLASSES, m.output_share("interactive", 60), RISES),
            Effect(TWO_CLASSES, m.wait(0.5, "of `interactive`", INTERACTIVE), FALLS),
            Effect(TWO_CLASSES, m.wait(0.5, "of `batch`", BATCH), RISES),
        ),
    ),
    Knob(
        name="classes",
        values=("one", "two"),
        shown=("all alike", "two classes"),
        turn=_one_class_or_two,
        stated=(
            "Offline work that gets into the interactive queue ruins its TTFT; classes keep what "
            "is incompatible apart."
        ),
        effects=(
            Effect(CALM_AND_BATCH, m.ttft(0.5, "of `interactive`", INTERACTIVE), FALLS),
            Effect(CALM_AND_BATCH, m.ttft(0.99, "of `interactive`", INTERACTIVE), FALLS),
            Effect(CALM_AND_BATCH, m.THROUGHPUT),
        ),
        note="With two classes `interactive` weighs 8, and `batch` may hold 60 % of the slots.",
    ),
    Knob(
        name="best_effort",
        values=(False, True),
        shown=("false", "true"),
        turn=in_class("batch", "best_effort"),
        stated="Internal evaluation: best effort, may be preempted.",
        effects=(
            Effect(
                CALM_AND_BATCH.having("chats beside batch work, little KV", num_blocks=640),
                m.itl(1.0, "of `interactive`", INTERACTIVE),
                FALLS,
            ),
        ),
    ),
    Knob(
        name="max_output_tokens",
        values=(None, 1000, 250),
        shown=("none", "1000", "250"),
        turn=in_class("default", "max_output_tokens"),
        stated="Long answers hold slots and bandwidth; a limit keeps short requests from spikes.",
        effects=(
            Effect(LONG_ANSWERS, m.ttft(0.99, "of short answers", SHORT_ANSWERS), FALLS),
            Effect(LONG_ANSWERS, m.latency(0.5, "of short answers", SHORT_ANSWERS), FALLS),
        ),
    ),
    Knob(
        name="max_queue_requests",
        values=(16, 128, None),
        shown=("16", "128", "none"),
        turn=limit("max_queue_requests"),
        stated="Queues need a limit: without one a queue that grows is only longer waiting.",
        effects=(
            Effect(OVERLOAD, m.ttft(0.99), RISES),
            Effect(OVERLOAD, m.REFUSED, FALLS),
            Effect(OVERLOAD, m.THROUGHPUT),
        ),
    ),
    Knob(
        name="max_queue_tokens",
        values=(4096, 32_768, None),
        shown=("4096", "32768", "none"),
        turn=limit("max_queue_tokens"),
        stated="The same in tokens.",
        effects=(
            Effect(OVERLOAD, m.ttft(0.99), RISES),
            Effect(OVERLOAD, m.REFUSED, FALLS),
        ),
    ),
    Knob(
        name="queue_timeout_s",
        values=(2.0, 10.0, None),
        shown=("2", "10", "none"),
        turn=in_class("default", "queue_timeout_s"),
        stated="The server needs deadlines of its own.",
        effects=(
            Effect(OVERLOAD, m.wait(1.0), RISES),
            Effect(OVERLOAD, m.REFUSED, FALLS),
        ),
    ),
    Knob(
        name="reserved_slots",
        values=(0, 8),
        turn=lambda config, value: with_class(
            config, "interactive", reserved_slots=value, reserved_blocks=128 * value
        ),
        stated="Real time: never queue; reserved capacity buys certainty.",
        effects=(
            Effect(CALM_AND_BATCH, m.wait(1.0, "of `interactive`", INTERACTIVE), FALLS),
            Effect(CALM_AND_BATCH, m.REFUSED),
        ),
        note=(
            "128 blocks are reserved for each slot. A class with a reservation is refused at once "
            "what it can't hold, so what is left never waits."
        ),
    ),
)
