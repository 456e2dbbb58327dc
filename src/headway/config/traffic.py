"""Settings of classes and tenants: tables of which the file may have any number.

``[classes.NAME]`` and ``[tenants.NAME]``; neither variables nor flags reach them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from headway.config.declare import Section, Setting, setting, settings_of

#: Priorities lie between this and its negative: a level is a head start of ``ageing_s``, so more
#: levels would be a head start without end.
MAX_PRIORITY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings(Section):
    """One class of traffic: what is promised to it, and what it may take."""

    section: ClassVar[str] = "classes"

    weight: float = setting(
        1.0,
        "share of the tokens served while several classes have work waiting; not with the policies "
        "`priority` and `slo` of `[scheduler]`, which compare requests across classes",
        above=0,
    )
    ttft_p99_ms: float | None = setting(
        None, "time to the first token that is promised, 99 times in 100; unset: none", above=0
    )
    tpot_p99_ms: float | None = setting(
        None,
        "time for each further token that is promised; unset: none; with the policy `slo` of "
        "`[scheduler]`, continuous batching and chunked prefill steps are kept so small, else it "
        "is only measured",
        above=0,
    )
    policy: Literal["fcfs", "sjf", "priority", "fair", "slo"] | None = setting(
        None,
        "order inside the class, nothing else: small steps for `tpot_p99_ms`, and taking slots by "
        "`priority`, come with the policy of `[scheduler]` only; unset: that one",
    )
    priority: int | None = setting(
        None,
        "of its requests that bring none; lower goes first; unset: 0",
        at_least=-MAX_PRIORITY,
        at_most=MAX_PRIORITY,
    )
    min_running_share: float = setting(
        0.0,
        "share of the slots that it gets whenever it has work, if need be from classes that have "
        "more than theirs",
        at_least=0,
        at_most=1,
    )
    max_running_share: float = setting(
        1.0, "share of slots, blocks and step tokens that it never exceeds", above=0, at_most=1
    )
    max_waiting_time_ms: float | None = setting(
        None,
        "how long its new requests may be held back for a batch to fill; unset: as the whole "
        "scheduler",
        at_least=0,
    )
    max_queue_requests: int | None = setting(
        None, "sequences of it that may wait; unset: any number", at_least=0
    )
    max_queue_tokens: int | None = setting(
        None, "prompt tokens of it that may wait; unset: any number", at_least=1
    )
    max_output_tokens: int | None = setting(
        None, "longer answers are cut to this, and say so; unset: none is", at_least=1
    )
    queue_timeout_s: float | None = setting(
        None, "as in `[scheduler]`, for this class; unset: that one", above=0
    )
    request_timeout_s: float | None = setting(
        None, "as in `[scheduler]`, for this class; unset: that one", above=0
    )
    best_effort: bool = setting(False, "its sequences are preempted before those of other classes")
    reserved_slots: int = setting(
        0,
        "slots that nobody else may use; the class then never queues: what its reservation can't "
        "hold is refused at once; goes with `reserved_blocks`",
        at_least=0,
    )
    reserved_blocks: int = setting(
        0, "KV blocks that nobody else may use; goes with `reserved_slots`", at_least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings(Section):
    """One tenant: whose requests are counted together for fairness, and share their prefixes."""

    section: ClassVar[str] = "tenants"

    weight: float = setting(
        1.0, "share of the tokens served among the tenants of a class, with `fair`", above=0
    )
    default_class: str | None = setting(
        None, "class of its requests that name none; unset: that of the server"
    )
    api_key: tuple[str, ...] = setting((), "keys by which it is known", secret=True)


TABLES: dict[str, type[Section]] = {"classes": ClassSettings, "tenants": TenantSettings}


def table_settings(kind: str, name: str) -> tuple[Setting, ...]:
    """Every setting of one named table, with keys as ``classes.chat.weight``."""
    section = f"{kind}.{name}"
    return tuple(replace(found, section=section) for found in settings_of(TABLES[kind]))
