"""Settings that are allowed together, but hardly meant: one line of warning for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headway.config.capacity import num_guaranteed
from headway.config.computing import unread

if TYPE_CHECKING:
    from headway.config.settings import SchedulerSettings, Settings
    from headway.config.traffic import ClassSettings


class Doubt(NamedTuple):
    """What is doubtful, with its numbers, and the settings that it is about."""

    message: str
    keys: tuple[str, ...]


def doubts(settings: Settings) -> Iterator[Doubt]:
    """Yield what the operator should know of settings that are allowed."""
    yield from _of_computing(settings)
    yield from _of_tenants(settings)
    yield from _of_slo(settings)
    yield from _of_static(settings.scheduler)
    yield from _of_timeouts(settings)
    yield from _of_shares(settings)
    yield from _of_waiting(settings)


def _of_computing(settings: Settings) -> Iterator[Doubt]:
    executor = "model.executor"
    for key, value in unread(settings):
        yield Doubt(
            f'{key} ({value}) has no effect with {executor} = "{settings.model.executor}"',
            (key, executor),
        )


def _of_tenants(settings: Settings) -> Iterator[Doubt]:
    """Weights of tenants are no error without `fair`: who pays for more stays so in a trial."""
    policies = [settings.scheduler.policy, *(each.policy for each in settings.classes.values())]
    keys = [f"tenants.{name}.weight" for name, each in settings.tenants.items() if each.weight != 1]
    if keys and "fair" not in policies:
        what = f"{keys[0]} has" if len(keys) == 1 else f"{', '.join(keys)} have"
        yield Doubt(
            f'{what} no effect: the policy is "fair" neither for all nor for a class',
            (*keys, "scheduler.policy"),
        )


# -------------------------------------------------------------------- slo


def _of_slo(settings: Settings) -> Iterator[Doubt]:
    for name, each in settings.classes.items():
        if each.policy == "slo" and each.ttft_p99_ms is None:
            key = f"classes.{name}"
            yield Doubt(
                f'{key}.policy = "slo" has no effect: {key}.ttft_p99_ms, by which it orders, is '
                "unset",
                (f"{key}.policy", f"{key}.ttft_p99_ms"),
            )
    if settings.scheduler.policy == "slo":
        yield from _of_global_slo(settings.scheduler, settings.classes)


def _of_global_slo(
    scheduler: SchedulerSettings, classes: Mapping[str, ClassSettings]
) -> Iterator[Doubt]:
    policy = "scheduler.policy"
    if all(each.ttft_p99_ms is None and each.tpot_p99_ms is None for each in classes.values()):
        yield Doubt(
            f'{policy} = "slo" has no effect: no class states ttft_p99_ms or tpot_p99_ms', (policy,)
        )
    targets = [f"classes.{name}.tpot_p99_ms" for name, each in classes.items() if each.tpot_p99_ms]
    if targets and scheduler.batching != "continuous":
        key = "scheduler.batching"
        yield _unprotected(targets, f'{key} = "{scheduler.batching}"', key)
    elif targets and not scheduler.enable_chunked_prefill:
        key = "scheduler.enable_chunked_prefill"
        yield _unprotected(targets, f"{key} = false", key)


def _unprotected(targets: list[str], obstacle: str, key: str) -> Doubt:
    return Doubt(
        f"{', '.join(targets)}: no step is made smaller to keep it with {obstacle}; that takes "
        "continuous batching and chunked prefill",
        (*targets, key),
    )


# -------------------------------------------------------------------- batches, time and shares


def _of_static(scheduler: SchedulerSettings) -> Iterator[Doubt]:
    if scheduler.batching != "static":
        return
    defaults = {field.name: field.default for field in dataclasses.fields(scheduler)}
    reasons = {
        "max_passes": "nobody passes into a static batch",
        "max_preemptions": "a static batch is never preempted",
        "preemption_victim": "a static batch is never preempted",
    }
    for name, reason in reasons.items():
        value = getattr(scheduler, name)
        if value != defaults[name]:
            key = f"scheduler.{name}"
            yield Doubt(f"{key} = {value} has no effect: {reason}", (key, "scheduler.batching"))


def _of_timeouts(settings: Settings) -> Iterator[Doubt]:
    tables = {
        "scheduler": settings.scheduler,
        **{f"classes.{name}": each for name, each in settings.classes.items()},
    }
    for table, each in tables.items():
        found = {}
        for name in ("request_timeout_s", "queue_timeout_s"):
            home = "scheduler" if getattr(each, name) is None else table
            found[f"{home}.{name}"] = getattr(tables[home], name)
        (whole_key, whole), (queue_key, queue) = found.items()
        is_inherited = table not in (whole_key.rpartition(".")[0], queue_key.rpartition(".")[0])
        if whole is not None and queue is not None and whole < queue and not is_inherited:
            yield Doubt(
                f"{queue_key} ({queue:g}) has no effect: {whole_key} ({whole:g}) passes before",
                (queue_key, whole_key),
            )


def _of_shares(settings: Settings) -> Iterator[Doubt]:
    most = settings.scheduler.max_num_seqs
    classes = settings.classes
    number = sum(
        each.reserved_slots + num_guaranteed(each.min_running_share, most)
        for each in classes.values()
    )
    shares = [
        f"classes.{name}.min_running_share" for name, c in classes.items() if c.min_running_share
    ]
    bare = [name for name, c in classes.items() if not c.min_running_share and not c.reserved_slots]
    if shares and bare and number >= most:
        yield Doubt(
            f"classes.{bare[0]} has no min_running_share, and what others are sure of is all "
            f"{most} slots: it may starve",
            (*shares, "scheduler.max_num_seqs"),
        )


def _of_waiting(settings: Settings) -> Iterator[Doubt]:
    """With `protect = "ttft"`, nobody's wait may be longer than his own target."""
    if settings.scheduler.protect != "ttft":
        return
    for name, each in settings.classes.items():
        wait, target = each.max_waiting_time_ms, each.ttft_p99_ms
        if wait is not None and target is not None and wait > target:
            keys = (f"classes.{name}.max_waiting_time_ms", f"classes.{name}.ttft_p99_ms")
            yield Doubt(
                f'scheduler.protect = "ttft", but {keys[0]} ({wait:g}) is above {keys[1]} '
                f"({target:g}): it is held as long as the target allows, and no longer",
                keys,
            )
