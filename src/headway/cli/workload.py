"""Flags of workloads, for every command that runs one: a file, or one stream of flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.config import Settings
    from headway.workload import Targets, WorkloadSpec
    from headway.workload.spec import Key

_DEFAULT_REQUESTS = 100
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}
_DEST = "stream."


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    from headway.workload import stream_keys

    group = parser.add_argument_group(
        "workload", "A file with streams and targets, or one stream made of the flags below."
    )
    group.add_argument("--workload", metavar="FILE", help="workload file (TOML)")
    group.add_argument(
        "--duration-s", type=float, metavar="S", help="nothing is sent after so many seconds"
    )
    group.add_argument("--seed", type=int, metavar="N", help="decides all that is drawn")
    group.add_argument(
        "--goodput",
        nargs="+",
        metavar="NAME:MS",
        help="targets: ttft:MS, tpot:MS, e2el:MS, of one class as CLASS/ttft:MS",
    )
    stream = parser.add_argument_group("stream")
    for key in stream_keys():
        _add_key(stream, key)


def _add_key(group: argparse._ArgumentGroup, key: Key) -> None:
    shown = f" (default: {key.default})" if key.default not in (None, 0.0, 0) else ""
    group.add_argument(
        "--" + key.name.replace("_", "-"),
        dest=_DEST + key.name,
        default=argparse.SUPPRESS,
        type=key.kind,
        choices=key.choices or None,
        metavar=None if key.choices else _METAVARS[key.kind],
        help=(key.meaning + shown).replace("%", "%%"),
    )


def spec_from(args: argparse.Namespace, *, default_rate: float | None = None) -> WorkloadSpec:
    """Return the workload that the flags say.

    Args:
        args: parsed flags.
        default_rate: of a stream that doesn't say when its requests come.

    Raises:
        UsageError: they say none, or contradict each other.
    """
    from dataclasses import replace

    from headway.workload import WorkloadSpec, read_spec

    flags = {key: vars(args)[_DEST + key] for key in flags_of_stream(args)}
    given: dict[str, Any] = {}
    if args.seed is not None:
        given["seed"] = args.seed
    if args.duration_s is not None:
        given["duration_s"] = args.duration_s
    if args.workload is None:
        stream = _stream(flags, default_rate, args.duration_s)
        spec = WorkloadSpec(streams=(stream,), targets=targets_from(args.goodput), **given)
        return _with_known_classes(spec)
    if flags:
        name = next(iter(flags)).replace("_", "-")
        raise UsageError(f"--{name} makes a stream of its own: it goes into the --workload file")
    spec = replace(read_spec(Path(args.workload)), **given)
    targets = dict(spec.targets)
    for name, stated in targets_from(args.goodput).items():
        targets[name] = targets[name].under(stated) if name in targets else stated
    return _with_known_classes(replace(spec, targets=targets))


def _with_known_classes(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload, if each class with targets is one of its own.

    Raises:
        UsageError: one isn't, so its targets would judge nobody.
    """
    from headway.workload import EVERY_CLASS

    known = spec.class_names
    for name in spec.targets:
        if known is not None and name not in (EVERY_CLASS, *known):
            raise UsageError(
                f"class {name} has targets, and no stream: the workload has {', '.join(known)}"
            )
    return spec


def placed(spec: WorkloadSpec, settings: Settings) -> WorkloadSpec:
    """Return the workload with each request in the class in which a server would have it.

    Raises:
        UsageError: the settings have no such class.
    """
    from dataclasses import replace

    known = list(settings.classes) or [settings.default_class]
    streams = tuple(
        each
        if each.class_name or each.says_classes
        else replace(each, class_name=settings.default_class)
        for each in spec.streams
    )
    for each in streams:
        if each.class_name is not None and each.class_name not in known:
            raise UsageError(
                f"the settings have no class {each.class_name}, but {', '.join(known)}: "
                "a file for --config names more"
            )
    return replace(spec, streams=streams)


def flags_of_stream(args: argparse.Namespace) -> list[str]:
    """Return the names of the flags of a stream that were given."""
    return [key.removeprefix(_DEST) for key in vars(args) if key.startswith(_DEST)]


def _stream(flags: dict[str, Any], default_rate: float | None, duration_s: float | None) -> Any:
    from headway.workload import stream_of

    says_when = {"request_rate", "rate_steps", "concurrency", "process"} & flags.keys()
    if default_rate is not None and not says_when:
        flags["request_rate"] = default_rate
    is_long = {"num_requests", "rate_steps"} & flags.keys() or duration_s is not None
    is_trace = flags.get("source", "synthetic") not in ("synthetic", "lines", "servegen")
    if not is_long and not (is_trace and "concurrency" not in flags):
        flags["num_requests"] = _DEFAULT_REQUESTS
    return stream_of(flags)


def targets_from(given: list[str] | None) -> dict[str, Targets]:
    """Return the targets that ``--goodput`` states.

    Raises:
        UsageError: it states none, or two for one figure.
    """
    from headway.workload import EVERY_CLASS, Targets

    made: dict[str, dict[str, float]] = {}
    for each in given or ():
        named, _, milliseconds = each.rpartition(":")
        class_name, _, metric = named.rpartition("/")
        try:
            value = float(milliseconds)
        except ValueError:
            value = 0.0
        if metric not in ("ttft", "tpot", "e2el") or not 0 < value < float("inf"):
            raise UsageError(f"--goodput {each}: use ttft:MS, tpot:MS or e2el:MS, or CLASS/ttft:MS")
        of_class = made.setdefault(class_name or EVERY_CLASS, {})
        if f"{metric}_s" in of_class:
            raise UsageError(f"--goodput {each}: {named} is there twice")
        of_class[f"{metric}_s"] = value / 1e3
    return {name: Targets(**values) for name, values in made.items()}
