"""``headway compare``: one workload without batches, and with each kind of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headway.cli.machine import add_machine
from headway.cli.options import add_settings, load
from headway.cli.output import print_warnings
from headway.cli.reporting import add_files, write
from headway.cli.workload import add_workload, placed, spec_from
from headway.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from headway.cli.comparing import Bench
    from headway.config import Settings
    from headway.report import Comparison
    from headway.sim.comparison import ModeRun
    from headway.sim.modes import Mode
    from headway.workload import Workload, WorkloadSpec

SECTIONS = ("model", "scheduler", "kv", "simulation")
#: the flag --seed is the workload's here, and the modes are what differs
_WITHOUT = ("model.seed", "scheduler.batching")
INTERRUPTED = 130
#: of the stream that is run unless flags say otherwise
_DEFAULTS = {
    "prompt_tokens": "lognormal:100:0.8:400",
    "output_tokens": "lognormal:70:0.9:400",
    "num_requests": 128,
    "request_rate": float("inf"),
}
_SAYS_WHEN = ("request_rate", "rate_steps", "concurrency", "process")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    group = parser.add_argument_group("run")
    group.add_argument(
        "--simulated",
        action="store_true",
        help="on a virtual clock; unless told otherwise a 7B model on an A100",
    )
    group.add_argument(
        "--modes",
        metavar="NAME,NAME",
        help="some of none, static-8, static-32, dynamic-8, dynamic-32, continuous (default: all)",
    )
    group.add_argument(
        "--repetitions",
        type=int,
        metavar="N",
        default=1,
        help="run all modes so often, in turn, and show medians (default: 1)",
    )
    add_machine(parser)
    add_workload(parser)
    add_files(parser, "mode and repetition")
    add_settings(parser, SECTIONS, _WITHOUT)


def run(args: argparse.Namespace) -> int:
    """Run the modes and report; 1 if one of them completed nothing, 130 if interrupted."""
    modes = _modes(args)
    _check(args)
    spec = _spec(args)
    _refuse_misconduct(spec)
    from headway.cli.comparing import live_bench, simulated_bench

    settings = _settings_by_mode(args, modes)
    spec = placed(spec, next(iter(settings.values())))
    workload = _workload(spec)
    largest = max(settings.values(), key=lambda each: each.scheduler.max_num_seqs)
    bench = (
        simulated_bench(args, largest, workload)
        if args.simulated
        else live_bench(largest, workload, spec.seed)
    )
    runs: dict[str, list[ModeRun]] = {}
    with _until_interrupted() as was_interrupted:
        _run_all(args, modes, settings, bench, runs, was_interrupted)
        stopped = was_interrupted()
    if not runs:
        return INTERRUPTED
    _write(args, bench.report(spec, modes, settings, runs, args.title))
    if stopped:
        return INTERRUPTED
    return 0 if all(each[0].figures.num_completed for each in runs.values()) else 1


# -------------------------------------------------------------------- what is asked for


def _modes(args: argparse.Namespace) -> list[Mode]:
    """Return the modes in their order; continuous is the last, if it is among them."""
    from headway.sim.modes import MODES

    if args.modes is None:
        return list(MODES)
    wanted = [each.strip() for each in args.modes.split(",")]
    known = [each.name for each in MODES]
    for name in wanted:
        if name not in known:
            raise UsageError(f"--modes: there is no {name!r}; known: {', '.join(known)}")
    return [each for each in MODES if each.name in wanted]


def _check(args: argparse.Namespace) -> None:
    if args.repetitions < 1:
        raise UsageError(f"--repetitions must be at least 1, not {args.repetitions}")
    if args.simulated and args.repetitions > 1:
        raise UsageError("--repetitions: a simulation gives the same each time: leave it out")
    if args.simulated:
        return
    given = {"--profile": args.profile, "--device": args.device, "--weights": args.weights}
    given |= {"--model-config": args.model_config}
    given |= {"--tensor-parallel": None if args.tensor_parallel == 1 else args.tensor_parallel}
    for flag, value in given.items():
        if value is not None:
            raise UsageError(f"{flag} says what is simulated: it goes with --simulated")


def _spec(args: argparse.Namespace) -> WorkloadSpec:
    """Return the workload; of a synthetic stream, flags that aren't given have values of ours."""
    if args.workload is None and getattr(args, "stream.source", "synthetic") == "synthetic":
        says_when = any(hasattr(args, f"stream.{name}") for name in _SAYS_WHEN)
        for name, value in _DEFAULTS.items():
            needless = (name == "request_rate" and says_when) or (
                name == "num_requests" and args.duration_s is not None
            )
            if not needless and not hasattr(args, f"stream.{name}"):
                setattr(args, f"stream.{name}", value)
    return spec_from(args)


def _workload(spec: WorkloadSpec) -> Workload:
    from headway.workload import build

    workload = build(spec)
    if workload.loops:
        raise UsageError(
            "concurrency: in a closed loop each mode would get its requests at other times; "
            "compare in an open one, with request_rate"
        )
    if not workload.arrivals:
        raise UsageError("the workload has no requests")
    return workload


def _refuse_misconduct(spec: WorkloadSpec) -> None:
    if any(each.cancel_share or each.stall_share for each in spec.streams):
        raise UsageError(
            "cancel_share and stall_share: clients that go away or stop reading get other answers "
            "in each mode, so that they can't be compared; leave them out"
        )


def _settings_by_mode(args: argparse.Namespace, modes: Sequence[Mode]) -> dict[str, Settings]:
    """Return the settings of each mode, by its name.

    Raises:
        ConfigError: what is set contradicts a mode.
    """
    base = load(args)
    print_warnings(base.warnings)
    if base.settings.scheduler.batching != "continuous":
        raise ConfigError(
            f"scheduler.batching ({base.settings.scheduler.batching}, from "
            f"{base.origins['scheduler.batching']}) is what the modes differ in: leave it out, and "
            "choose with --modes"
        )
    has_own = str(base.origins["scheduler.max_num_seqs"]) != "default"
    found = {}
    for mode in modes:
        wanted = {"scheduler.batching": mode.batching, "scheduler.max_num_seqs": mode.num_slots}
        if mode.batching == "continuous" and has_own:
            wanted["scheduler.max_num_seqs"] = base.settings.scheduler.max_num_seqs
        try:
            loaded = load(argparse.Namespace(**{**vars(args), **wanted}))
        except ConfigError as error:
            raise ConfigError(f"mode {mode.name}: {error}; or choose others with --modes") from None
        found[mode.name] = loaded.settings
    return found


# -------------------------------------------------------------------- runs


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Yield what tells whether Ctrl-C came; a second one ends everything."""
    import signal

    came: list[int] = []

    def on_interrupt(number: int, _: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)


def _run_all(
    args: argparse.Namespace,
    modes: Sequence[Mode],
    settings: dict[str, Settings],
    bench: Bench,
    runs: dict[str, list[ModeRun]],
    was_interrupted: Callable[[], bool],
) -> None:
    """Run every mode, then every mode again, so that a slow minute is not one mode's alone."""
    for number in range(1, args.repetitions + 1):
        for mode in modes:
            which = f", {number} of {args.repetitions}" if args.repetitions > 1 else ""
            print(f"headway: {mode.title}{which}", file=sys.stderr)
            found = bench.run(settings[mode.name], was_interrupted)
            if found is None:
                return
            runs.setdefault(mode.name, []).append(found)


# -------------------------------------------------------------------- output


def _write(args: argparse.Namespace, comparison: Comparison) -> None:
    from headway.report import (
        comparison_as_text,
        comparison_page,
        comparison_to_json,
        write_comparison_csv,
    )

    write(
        args,
        comparison_to_json(comparison),
        text=lambda: comparison_as_text(comparison),
        page=lambda: comparison_page(comparison),
        csv=lambda file: write_comparison_csv(comparison, file),
    )
