"""A profile that an engine keeps current while it serves: from its own steps, in a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from uuid import uuid4

from headway.core.plan import SequenceId, StepPlan, StepResult
from headway.core.ports import Executor
from headway.profiles.errors import ProfileError
from headway.profiles.fitted import FittedCosts
from headway.profiles.profile import Profile, read_profile, write_profile
from headway.profiles.running import RunningFit
from headway.profiles.shape import StepShape

_log = logging.getLogger(__name__)

EVERY_S = 60.0
"""How often a profile is written unless told, in seconds."""

_EVERY_NTH = 4
"""Of steps of decodes alone, which are many and much alike, each so many-th is looked at."""


class ProfileKeeper:
    """Runs plans by another executor, learns what they cost, and writes that down again and again.

    It begins with the profile that the file holds, if there is one. The file is replaced as a
    whole, by a thread of its own, so that a slow disk delays no token, and it is whole
    whenever somebody reads it or the engine dies. Of several engines with one file, the last to
    write has it.

    Args:
        inner: computes, one plan in flight.
        now: a monotonic clock, in seconds.
        path: of the profile.
        name: of model and machine, for a new profile.
        every_s: how often it is written, in seconds.

    Raises:
        ProfileError: the file can't be read or written, or its costs are not fitted ones.
    """

    def __init__(
        self, inner: Executor, now: Callable[[], float], path: Path, *, name: str, every_s: float
    ) -> None:
        self._inner = inner
        self._now = now
        self._path = path
        self._every_s = every_s
        self._before = read_profile(path) if path.exists() else None
        self._name = name if self._before is None else self._before.name
        self._device = RunningFit("device", _fitted(self._before, path))
        self._host = RunningFit("host", None if self._before is None else self._before.host)
        self._num_steps = 0
        self._last: tuple[float, frozenset[SequenceId]] = (0.0, frozenset())
        self._written_at = now()
        self._writer: Thread | None = None
        _check_writable(path)

    def run(self, plan: StepPlan) -> StepResult:
        """Run the plan, and look at how long it took."""
        began = self._now()
        result = self._inner.run(plan)
        ended = self._now()
        if not result.failures:
            self._num_steps += 1
            if self._num_steps % _EVERY_NTH == 0 or any(part.count > 1 for part in plan.slices):
                self._learn(plan, began, ended)
        self._last = (ended, frozenset(part.sequence_id for part in plan.slices))
        if ended - self._written_at >= self._every_s:
            self._written_at = ended
            self._write_beside()
        return result

    def profile(self) -> Profile:
        """Return the profile as of now.

        Raises:
            ProfileError: there were too few steps, and no profile before.
        """
        now = Profile(
            name=self._name,
            source=f"kept current by an engine that serves, from {self._device.num_steps} steps",
            device=self._device.costs(),
            host=self._host_costs(),
        )
        if self._before is None:
            return now
        return replace(now, interference=self._before.interference, overlaps=self._before.overlaps)

    def close(self) -> None:
        """Write a last time, and wait until that is done."""
        self._wait()
        self._write_beside()
        self._wait()

    def _wait(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _host_costs(self) -> FittedCosts | None:
        try:
            return self._host.costs()
        except ProfileError:  # nobody stayed for a second step
            return None

    def _learn(self, plan: StepPlan, began: float, ended: float) -> None:
        shape = StepShape.of_plan(plan)
        if ended > began:
            self._device.add(shape, ended - began)
        free_since, members = self._last
        # Who was in the step before was never waited for: the time between is the host's.
        if began > free_since and any(part.sequence_id in members for part in plan.slices):
            self._host.add(shape, began - free_since)

    def _write_beside(self) -> None:
        if self._writer is not None and self._writer.is_alive():
            return  # a disk that is so slow gets the next one
        try:
            profile = self.profile()
        except ProfileError as error:
            _log.info("the profile %s is not written yet: %s", self._path, error)
            return
        self._writer = Thread(target=_replace, args=(self._path, profile), daemon=True)
        self._writer.start()


def _fitted(profile: Profile | None, path: Path) -> FittedCosts | None:
    if profile is None:
        return None
    if not isinstance(profile.device, FittedCosts):
        raise ProfileError(f"{path} holds costs that were not fitted to steps: name another file")
    return profile.device


def _check_writable(path: Path) -> None:
    """Find out at the start what would otherwise be found out a minute later."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ProfileError(f"{path} can't be written: there is no folder {folder}")
    # The file is replaced, by one that is written beside it.
    if not os.access(folder, os.W_OK):
        raise ProfileError(f"{path} can't be written: permission denied")


def _replace(path: Path, profile: Profile) -> None:
    # Numbers of processes are not enough for a name: several machines may share the folder.
    beside = path.with_name(f"{path.name}.{uuid4().hex}.new")
    try:
        write_profile(beside, profile)
        beside.replace(path)
    except (OSError, ProfileError) as error:
        _log.warning("the profile %s was not written: %s", path, error)
        with suppress(OSError):  # it may not be there, nor its folder
            beside.unlink()
