"""What classes are promised of slots and blocks must be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headway.config.contradiction import contradict
from headway.core.classes import ServiceClass

if TYPE_CHECKING:
    from headway.config.settings import SchedulerSettings, Settings
    from headway.config.traffic import ClassSettings

#: What bounds a queue, and so means nothing to a class that never queues.
_OF_QUEUES = ("max_waiting_time_ms", "max_queue_requests", "max_queue_tokens", "queue_timeout_s")

_MOST = "scheduler.max_num_seqs"


def num_guaranteed(share: float, max_num_seqs: int) -> int:
    """Return the slots of a minimum share, as the scheduler counts them."""
    return ServiceClass(min_running_share=share).num_guaranteed(max_num_seqs)


def check_capacity(settings: Settings) -> None:
    """Check shares and reservations, of each class and of all together.

    Raises:
        ContradictionError: they contradict each other, or there is not as much.
    """
    for name, each in settings.classes.items():
        _check_order(f"classes.{name}", each)
        for flaw, keys in _reservation_flaws(f"classes.{name}", each, settings.scheduler):
            contradict(flaw, *keys)
    _check_shares(settings.classes)
    _check_slots(settings)
    _check_left_slots(settings)
    _check_blocks(settings)


# -------------------------------------------------------------------- one class


def _check_order(table: str, each: ClassSettings) -> None:
    low, high = each.min_running_share, each.max_running_share
    if low > high:
        contradict(
            f"{table}.min_running_share ({low:g}) must not exceed "
            f"{table}.max_running_share ({high:g})",
            f"{table}.min_running_share",
            f"{table}.max_running_share",
        )


def _reservation_flaws(
    table: str, each: ClassSettings, scheduler: SchedulerSettings
) -> Iterator[tuple[str, tuple[str, ...]]]:
    slots, blocks = each.reserved_slots, each.reserved_blocks
    own = (f"{table}.reserved_slots", f"{table}.reserved_blocks")
    if (slots > 0) != (blocks > 0):
        yield f"{own[0]} ({slots}) and {own[1]} ({blocks}) go together: both or neither", own
    if not slots:
        return
    reserving = f"{own[0]} ({slots})"
    if scheduler.batching == "static":
        key = "scheduler.batching"
        yield f'{reserving} can\'t be kept with {key} = "static"', (own[0], key)
    if not scheduler.enable_chunked_prefill:
        key = "scheduler.enable_chunked_prefill"
        why = "whole prompts of others would fill the steps"
        yield f"{reserving} can't be kept with {key} = false: {why}", (own[0], key)
    for name, without in (("min_running_share", 0.0), ("max_running_share", 1.0)):
        share, key = getattr(each, name), f"{table}.{name}"
        if share != without:
            why = "what is reserved is all that the class has"
            yield f"{key} ({share:g}) does not go with {reserving}: {why}", (key, own[0])
    yield from _idle_beside_reservation(table, each, reserving, own[0])


def _idle_beside_reservation(
    table: str, each: ClassSettings, reserving: str, own: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in _OF_QUEUES:
        value, key = getattr(each, name), f"{table}.{name}"
        if value:
            why = f"with {reserving} the class never queues"
            yield f"{key} ({value:g}) has no effect: {why}", (key, own)
    if each.best_effort:
        key = f"{table}.best_effort"
        why = f"with {reserving} the class is never preempted"
        yield f"{key} has no effect: {why}", (key, own)


# -------------------------------------------------------------------- all classes


def _check_shares(classes: Mapping[str, ClassSettings]) -> None:
    shares = {
        f"classes.{name}.min_running_share": each.min_running_share
        for name, each in classes.items()
        if each.min_running_share
    }
    total = sum(shares.values())
    if total > 1 + 1e-9:
        listed = ", ".join(f"{key} = {share:g}" for key, share in shares.items())
        contradict(f"the minimum shares add up to {total:g}, above 1: {listed}", *shares)


def _check_slots(settings: Settings) -> None:
    most = settings.scheduler.max_num_seqs
    needed: dict[str, tuple[str, int]] = {}
    for name, each in settings.classes.items():
        if each.reserved_slots:
            key = f"classes.{name}.reserved_slots"
            needed[key] = (f"{key} = {each.reserved_slots}", each.reserved_slots)
        if each.min_running_share:
            key = f"classes.{name}.min_running_share"
            number = num_guaranteed(each.min_running_share, most)
            needed[key] = (f"{key} = {each.min_running_share:g}, which is {number}", number)
    total = sum(number for _, number in needed.values())
    if total > most:
        listed = ", ".join(words for words, _ in needed.values())
        contradict(
            f"{total} slots are promised ({listed}; shares are rounded up), but {_MOST} is {most}",
            *needed,
            _MOST,
        )


def _check_left_slots(settings: Settings) -> None:
    reserved = _reserved(settings.classes, "reserved_slots")
    others = [name for name, each in settings.classes.items() if not each.reserved_slots]
    total, most = sum(reserved.values()), settings.scheduler.max_num_seqs
    if others and total == most:
        contradict(
            f"all {total} slots are reserved ({_listed(reserved)}), and none is left for "
            f"classes.{others[0]}: {_MOST} is {most}",
            *reserved,
            _MOST,
        )


def _check_blocks(settings: Settings) -> None:
    """Check against the pool if its size is stated; else that is for the start to find out."""
    most = settings.kv.num_blocks
    reserved = _reserved(settings.classes, "reserved_blocks")
    others = [name for name, each in settings.classes.items() if not each.reserved_blocks]
    total = sum(reserved.values())
    if most is not None and total + bool(others) > most:
        left = f", and classes.{others[0]} needs one" if others else ""
        contradict(
            f"{total} blocks are reserved ({_listed(reserved)}){left}, but kv.num_blocks is {most}",
            *reserved,
            "kv.num_blocks",
        )


def _reserved(classes: Mapping[str, ClassSettings], name: str) -> dict[str, int]:
    return {
        f"classes.{table}.{name}": getattr(each, name)
        for table, each in classes.items()
        if getattr(each, name)
    }


def _listed(reserved: Mapping[str, int]) -> str:
    return ", ".join(f"{key} = {number}" for key, number in reserved.items())
