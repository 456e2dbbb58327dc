"""What settings can't be together, although each alone is allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headway.config.capacity import check_capacity
from headway.config.computing import check_computing
from headway.config.contradiction import contradict
from headway.errors import ConfigError

if TYPE_CHECKING:
    from headway.config.settings import ProfileSettings, SchedulerSettings, ServerSettings, Settings

#: The class that there is if none is configured, and the default one if it is among others.
DEFAULT_CLASS = "default"

MAX_CLASSES = 32

_CLASS_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_TENANT_NAME = re.compile(r"[\x21-\x7e]{1,128}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")

#: Names that mean something else where clients or settings name a class.
_TAKEN_CLASS_NAMES = ("auto", "none")
_TAKEN_HEADERS = ("authorization", "content-length", "content-type", "x-request-id")


# -------------------------------------------------------------------- one section


def check_scheduler(scheduler: SchedulerSettings) -> None:
    """Check the section ``scheduler`` in itself.

    Raises:
        ContradictionError: two of its settings don't go together.
    """
    tokens, seqs = scheduler.max_num_batched_tokens, scheduler.max_num_seqs
    if tokens < seqs:
        contradict(
            f"scheduler.max_num_batched_tokens ({tokens}) must be at least "
            f"scheduler.max_num_seqs ({seqs}), "
            "because each running sequence computes a token in every step",
            "scheduler.max_num_batched_tokens",
            "scheduler.max_num_seqs",
        )
    for name in ("max_prefill_chunk_tokens", "max_partial_prefills"):
        if getattr(scheduler, name) is not None and not scheduler.enable_chunked_prefill:
            _no_effect(f"scheduler.{name}", "scheduler.enable_chunked_prefill")
    _check_long_prefills(scheduler)


def _check_long_prefills(scheduler: SchedulerSettings) -> None:
    most, threshold = "max_long_partial_prefills", "long_prefill_threshold_tokens"
    has_most, has_threshold = (getattr(scheduler, name) is not None for name in (most, threshold))
    if has_most and not has_threshold:
        _no_effect(f"scheduler.{most}", f"scheduler.{threshold}")
    if has_threshold and not has_most and scheduler.batching != "continuous":
        contradict(
            f"scheduler.{threshold} ({scheduler.long_prefill_threshold_tokens}) has no effect with "
            f'scheduler.batching = "{scheduler.batching}" unless scheduler.{most} is set: prompts '
            "share padded steps alike",
            f"scheduler.{threshold}",
            "scheduler.batching",
        )


def check_profile(profile: ProfileSettings) -> None:
    """Check the section ``profile`` in itself.

    Raises:
        ContradictionError: it says how often to write a profile, and not where.
    """
    if profile.every_s is not None and profile.path is None:
        _no_effect("profile.every_s", "profile.path")


def _no_effect(key: str, needed: str) -> None:
    contradict(f"{key} has no effect without {needed}", key, needed)


def check_headers(server: ServerSettings) -> None:
    """Check the names of the headers that are believed.

    Raises:
        ConfigError: a name is no name of a header, or has another meaning.
        ContradictionError: two have the same name.
    """
    given = {name: getattr(server, name) for name in ("class_header", "tenant_header")}
    for name, header in given.items():
        if header is None:
            continue
        if not _HEADER_NAME.fullmatch(header) or header.lower() in _TAKEN_HEADERS:
            raise ConfigError(
                f"server.{name} = {header!r}: must be a header's name (letters, digits and -), "
                f"and none of {', '.join(_TAKEN_HEADERS)}"
            )
    first, second = given.values()
    if first is not None and second is not None and first.lower() == second.lower():
        keys = tuple(f"server.{name}" for name in given)
        contradict(f"{keys[0]} and {keys[1]} are the same header ({first})", *keys)


# -------------------------------------------------------------------- all together


def check_together(settings: Settings) -> None:
    """Check the sections and tables against each other.

    Raises:
        ConfigError: a table has a name that is not allowed.
        ContradictionError: settings of several places don't go together.
    """
    check_computing(settings)
    _check_names(settings)
    _check_classes_named(settings)
    _check_keys(settings)
    _check_swap(settings)
    _check_whole_prompts(settings)
    check_capacity(settings)


def _check_names(settings: Settings) -> None:
    for name in settings.classes:
        if not _CLASS_NAME.fullmatch(name) or name in _TAKEN_CLASS_NAMES:
            raise ConfigError(
                f"classes.{name[:80]}: a class's name must have 1 to 64 of a-z, 0-9, _ and -, and "
                f"be none of {', '.join(_TAKEN_CLASS_NAMES)}"
            )
    for name in settings.tenants:
        if not _TENANT_NAME.fullmatch(name):
            raise ConfigError(
                f"tenants.{name[:150]!r}: a tenant's name must have 1 to 128 printable ASCII "
                "characters and no space"
            )
    if len(settings.classes) > MAX_CLASSES:
        raise ConfigError(f"{len(settings.classes)} classes are too many: at most {MAX_CLASSES}")


def _check_classes_named(settings: Settings) -> None:
    known = list(settings.classes) or [DEFAULT_CLASS]
    named = {"server.default_class": settings.server.default_class}
    for tenant, each in settings.tenants.items():
        named[f"tenants.{tenant}.default_class"] = each.default_class
    for key, name in named.items():
        if name is not None and name not in known:
            contradict(f"{key} = {name!r}: there is no such class; known: {', '.join(known)}", key)


def _check_keys(settings: Settings) -> None:
    """Refuse an API key that stands for two; the message must not have it."""
    owners: dict[str, str] = dict.fromkeys(settings.server.api_key, "server.api_key")
    for tenant, each in settings.tenants.items():
        own = f"tenants.{tenant}.api_key"
        for key in each.api_key:
            owner = owners.setdefault(key, own)
            if owner != own:
                contradict(f"{owner} and {own} have a key in common", owner, own)


def _check_swap(settings: Settings) -> None:
    mode, space = "scheduler.preemption_mode", "kv.swap_space_bytes"
    num_bytes = settings.kv.swap_space_bytes
    if settings.scheduler.preemption_mode == "swap" and not num_bytes:
        contradict(f'{mode} = "swap" needs {space} above 0', mode, space)
    if settings.scheduler.batching == "static" and num_bytes:
        contradict(
            f'{space} ({num_bytes}) has no effect with scheduler.batching = "static": such a batch '
            "is never preempted",
            space,
            "scheduler.batching",
        )


def _check_whole_prompts(settings: Settings) -> None:
    """Check the budget of steps where the longest sequence is known without the model."""
    scheduler, longest = settings.scheduler, settings.model.max_model_len
    if scheduler.enable_chunked_prefill or longest is None:
        return
    keys = ["scheduler.max_num_batched_tokens", "model.max_model_len"]
    if settings.kv.num_blocks is not None:
        num_kv_tokens = settings.kv.num_blocks * settings.kv.block_size
        if num_kv_tokens + 1 < longest:  # the last token needs no KV
            longest = num_kv_tokens + 1
            keys[1] = "kv.num_blocks"
    if scheduler.max_num_batched_tokens < longest:
        contradict(
            f"{keys[0]} ({scheduler.max_num_batched_tokens}) must hold the longest sequence, of "
            f"{longest} tokens by {keys[1]}, without scheduler.enable_chunked_prefill",
            *keys,
            "scheduler.enable_chunked_prefill",
        )
