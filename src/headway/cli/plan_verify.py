"""``headway plan --verify URL``: a plan's load on a live server, judged by the plan's targets."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.http_target import add_http, check_http, http_setup
from headway.cli.output import print_warnings
from headway.cli.plan_source import source_of_json
from headway.cli.reporting import write_value
from headway.cli.workload import flags_of_stream
from headway.config import all_settings
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.bench.over_http import Measured
    from headway.planning.trial import Aim
    from headway.planning.verify import Expected, Verdict
    from headway.workload import Workload

_WARMUP = 3
#: flags that make a plan, by their names in the namespace
_PLANNING = (
    *("workload", "goodput", "duration_s", "from_journal", "profile", "device", "model_config"),
    *("weights", "config", "write", "seed", "promise", "days", "screening_days"),
    *("max_instances", "router"),
)
_UNPLANNED = {**dict.fromkeys(_PLANNING), "tensor_parallel": 1}
_TESTING = ("plan", "load", "api_key", "header", "class_header", "tenant_header", "extra_body")
_UNTESTED = {
    **dict.fromkeys(_TESTING),
    **{"endpoint": "completions", "prompt_format": "text", "timeout_s": 600.0},
}


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group(
        "verify", "Puts the load of a plan on a live server, and says whether its targets hold."
    )
    group.add_argument("--verify", metavar="URL", help="the server; needs --plan")
    group.add_argument("--plan", metavar="FILE", help="as --output wrote it")
    group.add_argument(
        "--load", type=float, metavar="X", help="so many times the planned load (default: 1)"
    )
    add_http(group)


def check_without_verify(args: argparse.Namespace) -> None:
    """Refuse flags that only a load test knows.

    Raises:
        UsageError: one was given.
    """
    for flag in _given(args, _UNTESTED):
        raise UsageError(f"{flag} goes with --verify URL")


def _given(args: argparse.Namespace, unset: Mapping[str, object]) -> Iterator[str]:
    """Yield the flags that have another value than this one."""
    for name, value in unset.items():
        if getattr(args, name) != value:
            yield "--" + name.replace("_", "-")


def verify(args: argparse.Namespace) -> int:
    """Run the load test; 1 if a target is missed."""
    from headway.bench.over_http import measure_over_http
    from headway.planning.verify import aims_of_plan, verdicts

    _check(args)
    plan, factor = _read(Path(args.plan)), 1.0 if args.load is None else args.load
    aims = aims_of_plan(plan)
    workload, expected = _day_and_expected(plan, aims, factor)
    seconds = workload.duration_s
    print(f"headway: sending {len(workload.arrivals)} requests in {seconds:.4g} s", file=sys.stderr)
    setup = http_setup(args, args.verify, ignore_eos=True)
    measuring = measure_over_http(
        setup, workload, seed=plan["terms"]["seed"], warmup=_WARMUP, progress=sys.stderr
    )
    measured = asyncio.run(measuring)
    found = verdicts(measured.records, aims, expected)
    print_warnings(measured.doubts)
    value = _as_json(measured, found, expected, factor)
    lines = _lines(args.verify, measured, found, expected, factor)
    write_value(args, value, text=lambda: "\n".join(lines))
    return 0 if all(each.held for each in found) else 1


def _check(args: argparse.Namespace) -> None:
    check_http(args)
    if args.plan is None:
        raise UsageError("--verify needs --plan FILE, which headway plan --output writes")
    if args.load is not None and not 0 < args.load < float("inf"):
        raise UsageError(f"--load must be above 0, not {args.load:g}")
    given = list(_given(args, _UNPLANNED))
    given += ["--" + each.replace("_", "-") for each in flags_of_stream(args)]
    given += [s.flag for s in all_settings() if s.key in vars(args) and s.flag != "--model"]
    if given:
        raise UsageError(f"{given[0]} makes a plan, and --verify tests the one in --plan")


def _read(path: Path) -> dict[str, Any]:
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(plan, dict):
        raise UsageError(f"{path} is no plan of headway plan --output")
    return plan


def _day_and_expected(
    plan: Mapping[str, Any], aims: Sequence[Aim], factor: float
) -> tuple[Workload, Expected | None]:
    """Return what to send, and what was simulated of it.

    Raises:
        UsageError: the plan was changed, and lacks what is needed.
    """
    from headway.planning.verify import expected_at

    try:
        return _fresh_day(plan, aims, factor), expected_at(plan, factor)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"that is no plan of headway plan --output: {error!r}") from error


def _fresh_day(plan: Mapping[str, Any], aims: Sequence[Aim], factor: float) -> Workload:
    """Return a day that the plan was not made on."""
    from headway.planning.louder import louder
    from headway.planning.verify import targets_of

    source = source_of_json(plan["workload"], targets_of(aims))
    days = source.days(targets_of(aims))
    return louder(list(days.draw(ceil(factor), plan["terms"]["seed"] + 1)), factor)[0]


# ------------------------------------------------------------- what it says


def _lines(
    url: str,
    measured: Measured,
    found: Sequence[Verdict],
    expected: Expected | None,
    factor: float,
) -> Iterator[str]:
    from headway.planning.choices import counted
    from headway.report.text import left_aligned

    held = all(each.held for each in found)
    yield f"{measured.model} at {url}, {factor:g} times the planned load:"
    head = ("target", "limit", "measured", "simulated days", "")
    yield from (f"  {each}" for each in left_aligned([head, *map(_row, found)]))
    failed = sum(each.outcome != "completed" for each in measured.records)
    yield f"  {counted(len(measured.records), 'request')}, {failed} not completed"
    yield f"  {_said_before(expected, factor)}"
    yield "held" if held else "not held"


def _row(each: Verdict) -> tuple[str, ...]:
    from headway.planning.describe import milliseconds
    from headway.planning.describe_plan import aim_said, shown

    measured = "-" if each.measured_s is None else shown(each.measured_s)
    simulated = "-"
    if each.simulated:
        simulated = f"{shown(min(each.simulated))} to {shown(max(each.simulated))}"
    verdict = "held" if each.held else "NOT HELD"
    return aim_said(each.aim), milliseconds(each.aim.limit_s), measured, simulated, verdict


def _said_before(expected: Expected | None, factor: float) -> str:
    if expected is None:
        return f"the plan did not simulate {factor:g} times its load"
    return f"simulated at that load: all targets held on {expected.held} of {expected.of} days"


def _as_json(
    measured: Measured, found: Sequence[Verdict], expected: Expected | None, factor: float
) -> dict[str, Any]:
    from dataclasses import asdict

    from headway.planning.plan_json import finite

    value = {
        "held": all(each.held for each in found),
        "model_id": measured.model,
        "load": factor,
        "num_requests": len(measured.records),
        "num_completed": sum(each.outcome == "completed" for each in measured.records),
        "targets": [
            {
                **asdict(each.aim),
                "measured_s": each.measured_s,
                "simulated_s": list(each.simulated),
                "held": each.held,
            }
            for each in found
        ],
        "simulated": None if expected is None else {"held": expected.held, "of": expected.of},
        "warnings": list(measured.doubts),
    }
    return {key: finite(each) for key, each in value.items()}
