"""Makes the garbage collector of Python rare, so that it does not stop steps."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 20, 100)


def collect_rarely() -> None:
    """Set what is loaded aside for good, and let the collector look at new objects rarely.

    A step makes a thousand short-lived objects, so by default the collector runs in every step,
    and now and then goes through all that lives, for milliseconds. Headway's own objects hold no
    cycles once a request has ended, so they need no collector. This is a setting of the whole
    process: commands and benchmarks call it, the library does not.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def collection_put_off() -> Iterator[None]:
    """Let the collector look at nothing for a while, in which every stop would be measured.

    What is written down for each step makes it look at a hundred thousand objects now and then,
    for some 50 ms.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
