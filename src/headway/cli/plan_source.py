"""What a plan is for: a workload of flags and files, or what a server recorded."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.workload import flags_of_stream, spec_from, targets_from
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.planning.days import Days
    from headway.workload import Targets, Workload, WorkloadSpec


@dataclass(frozen=True, slots=True)
class Source:
    """One day as it was written or recorded, and where others like it come from.

    Attributes:
        workload: the day.
        spec: as it is written; None of a journal.
        journal: the file of a journal.
    """

    workload: Workload
    spec: WorkloadSpec | None = None
    journal: Path | None = None

    def days(self, targets: Mapping[str, Targets]) -> Days:
        """Return where days come from, each judged by these targets."""
        from headway.planning.days import RecordedDays, SpecDays

        if self.spec is not None:
            return SpecDays(replace(self.spec, targets=targets))
        return RecordedDays(replace(self.workload, targets=targets))

    def as_json(self) -> dict[str, Any]:
        """Return how to make it again; files by their whole paths."""
        from dataclasses import asdict

        if self.spec is None:
            return {"journal": str(self.journal)}
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
    from headway.workload import build

    if args.from_journal is None:
        spec = spec_from(args)
        spec = replace(spec, targets={**known, **spec.targets})
        return Source(build(spec), spec)
    _refuse_beside_journal(args)
    path = Path(args.from_journal).resolve()
    return recorded(path, {**known, **targets_from(args.goodput)})


def recorded(path: Path, targets: Mapping[str, Targets]) -> Source:
    """Return what a server recorded; targets go before those of its classes."""
    from headway.engine.journal import read_journal
    from headway.planning.recorded import recorded_workload

    found = recorded_workload(read_journal(path))
    workload = replace(found, targets={**found.targets, **targets})
    return Source(workload, journal=path)


def _refuse_beside_journal(args: argparse.Namespace) -> None:
    others = ["--" + name.replace("_", "-") for name in flags_of_stream(args)]
    others += ["--workload"] if args.workload is not None else []
    others += ["--duration-s"] if args.duration_s is not None else []
    if others:
        raise UsageError(f"{others[0]} and --from-journal both say what comes: leave out one")


def source_of_json(value: Mapping[str, Any], targets: Mapping[str, Targets]) -> Source:
    """Return the source that a plan names.

    Raises:
        UsageError: it is gone, or was none.
    """
    from headway.workload import Stream, WorkloadSpec, build

    if "journal" in value:
        return recorded(Path(value["journal"]), targets)
    streams = tuple(
        Stream(**{**each, "request_rate": _rate(each["request_rate"])}) for each in value["streams"]
    )
    spec = WorkloadSpec(
        streams=streams, duration_s=value["duration_s"], seed=value["seed"], targets=targets
    )
    return Source(build(spec), spec)


def _rate(value: float | str | None) -> float | None:
    return None if value is None else float(value)
