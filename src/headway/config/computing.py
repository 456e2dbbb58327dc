"""Which settings which executor reads: nothing that was asked for is ignored silently."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from headway.config.contradiction import contradict

if TYPE_CHECKING:
    from headway.config.settings import Settings

_OF_CPU: Final = ("model.quantization", "model.isa", "kv.dtype")
_OF_TORCH: Final = ("model.dtype",)

#: Settings of precision and speed that an executor does not read, and what it reads instead.
_UNREAD: Final = {
    "cpu": (_OF_TORCH, "it reads model.quantization and kv.dtype"),
    "torch": (_OF_CPU, "it reads model.dtype"),
}

#: What means nothing where nothing is computed; ``kv.dtype`` still says how large a block is.
_UNREAD_BY_SIMULATED: Final = (
    "model.dtype",
    "model.quantization",
    "model.isa",
    "model.dummy_format",
    "model.num_threads",
)


def check_computing(settings: Settings) -> None:
    """Check that the executor reads what was set for one that computes.

    Raises:
        ContradictionError: another one would have read it.
    """
    executor = settings.model.executor
    keys, instead = _UNREAD.get(executor, ((), ""))
    for key, value in _set_among(settings, keys):
        contradict(
            f'{key} ({value}) has no effect with model.executor = "{executor}": {instead}',
            key,
            "model.executor",
        )
    if settings.model.dummy_format is not None and settings.model.load_format != "dummy":
        contradict(
            f"model.dummy_format ({settings.model.dummy_format}) has no effect without "
            'model.load_format = "dummy"',
            "model.dummy_format",
            "model.load_format",
        )


def unread(settings: Settings) -> Iterator[tuple[str, object]]:
    """Yield key and value of what is set for computing and simulated, or the other way round.

    One file may well serve both, so that is no contradiction.
    """
    if settings.model.executor == "simulated":
        yield from _set_among(settings, _UNREAD_BY_SIMULATED)
    else:
        names = [field.name for field in dataclasses.fields(settings.simulation)]
        yield from _set_among(settings, [f"simulation.{name}" for name in names])


def _set_among(settings: Settings, keys: Iterable[str]) -> Iterator[tuple[str, object]]:
    """Yield those of the settings that are not at their defaults, with their values."""
    for key in keys:
        section, _, name = key.partition(".")
        table = getattr(settings, section)
        value = getattr(table, name)
        if value != getattr(type(table)(), name):
            yield key, value
