"""What a plan is for: a workload of flags and files, or what a server recorded."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.workload import flags_of_stream, spec_from, targets_from
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.planning.days import Days
    from headway.workload import Targets, Workload, WorkloadSpec


@dataclass(frozen=True, slots=True)
class Source:
    """One day as it was written, or a recording of some, and where others like it come from.

    Attributes:
        workload: the day or the recording.
        spec: as it is written; None of a journal.
        journal: the file of a journal.
        day_s: length of a day of a recording; None is that of all of it.
    """

    workload: Workload
    spec: WorkloadSpec | None = None
    journal: Path | None = None
    day_s: float | None = None

    def days(self, targets: Mapping[str, Targets]) -> Days:
        """Return where days come from, each judged by these targets."""
        from headway.planning.days import RecordedDays, SpecDays

        if self.spec is not None:
            return SpecDays(replace(self.spec, targets=targets))
        return RecordedDays(replace(self.workload, targets=targets), self.day_s)

    def as_json(self) -> dict[str, Any]:
        """Return how to make it again; files by their whole paths."""
        from dataclasses import asdict

        if self.spec is None:
            return {"journal": str(self.journal), "duration_s": self.day_s}
        streams = [asdict(each) for each in self.spec.streams]
        for each in streams:
            each["path"] = None if each["path"] is None else str(Path(each["path"]).resolve())
            each["request_rate"] = _finite(each["request_rate"])
        return {"streams": streams, "duration_s": self.spec.duration_s, "seed": self.spec.seed}


def _finite(rate: float | None) -> float | str | None:
    return "inf" if rate == float("inf") else rate  # JSON has no infinity


def source_from(args: argparse.Namespace, known: Mapping[str, Targets]) -> Source:
    """Return what the flags say; ``known`` are the targets of the settings.

    Raises:
        UsageError: they say nothing, or contradict each other.
    """
    if args.from_journal is None:
        spec = spec_from(args)
        return _written(replace(spec, targets={**known, **spec.targets}))
    _refuse_beside_journal(args)
    path = Path(args.from_journal).resolve()
    return recorded(path, {**known, **targets_from(args.goodput)}, args.duration_s)


def _written(spec: WorkloadSpec) -> Source:
    """Return what is known of the days of a spec: of traces all that they have may come on one.

    Raises:
        UsageError: a class of it does not come then, so nothing is known of it.
    """
    from headway.planning.days import SpecDays

    days = SpecDays(spec)
    workload = days.measured()
    come = {None, *(each.class_name for each in workload.arrivals)}  # None: the trace says it
    for each in spec.streams:
        if each.class_name not in come and not workload.loops:
            raise UsageError(
                f"no request of class {each.class_name} comes on the day that is planned for: "
                "make it longer (duration_s), or leave the class out"
            )
    return Source(workload, spec, day_s=spec.duration_s if days.num_recorded < inf else None)


def recorded(path: Path, targets: Mapping[str, Targets], day_s: float | None = None) -> Source:
    """Return what a server recorded; targets go before those of its classes."""
    from headway.engine.journal import read_journal
    from headway.planning.recorded import recorded_workload

    found = recorded_workload(read_journal(path))
    workload = replace(found, targets={**found.targets, **targets})
    return Source(workload, journal=path, day_s=day_s)


def _refuse_beside_journal(args: argparse.Namespace) -> None:
    others = ["--" + name.replace("_", "-") for name in flags_of_stream(args)]
    others += ["--workload"] if args.workload is not None else []
    if others:
        raise UsageError(f"{others[0]} and --from-journal both say what comes: leave out one")


def source_of_json(value: Mapping[str, Any], targets: Mapping[str, Targets]) -> Source:
    """Return the source that a plan names.

    Raises:
        UsageError: it is gone, or was none.
    """
    from headway.workload import Stream, WorkloadSpec

    if "journal" in value:
        return recorded(Path(value["journal"]), targets, value.get("duration_s"))
    streams = tuple(
        Stream(**{**each, "request_rate": _rate(each["request_rate"])}) for each in value["streams"]
    )
    spec = WorkloadSpec(
        streams=streams, duration_s=value["duration_s"], seed=value["seed"], targets=targets
    )
    return _written(spec)


def _rate(value: float | str | None) -> float | None:
    return None if value is None else float(value)
