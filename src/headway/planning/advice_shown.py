"""Advice on batching as tables for people, and as values for programs."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any, TextIO

from headway.planning.advice import Advice
from headway.planning.advice_modes import ModeResult
from headway.planning.shown import Rows, finite, write_rows
from headway.report.text import left_aligned

MODE_HEAD = ("batching", "full tokens/s", "mean e2el s", "p99 e2el s", "p99 ttft s", "attained")


def advice_as_text(found: Advice) -> str:
    """Return what to do, the findings, and what each mode makes of the workload."""
    lines = [f"{found.verdict}: {found.advice}", "", *left_aligned(finding_rows(found))]
    return "\n".join([*lines, "", *left_aligned([MODE_HEAD, *mode_rows(found)])])


def finding_rows(found: Advice) -> Rows:
    """Return a row for each case: its name, whether it applies, and the figure that decides."""
    return [
        (each.case, "applies" if each.applies else "no", each.figure) for each in found.findings
    ]


def mode_rows(found: Advice) -> Rows:
    """Return a row for each mode, under :data:`MODE_HEAD`."""
    return [_row(mode, each) for mode, each in found.modes.items()]


def _row(mode: str, each: ModeResult) -> tuple[str, ...]:
    times = (each.full_throughput, each.mean_e2el_s, each.p99_e2el_s, each.p99_ttft_s)
    attained = "-" if each.attained is None else f"{each.attained:.1%}"
    return (mode, *(f"{value:.4g}" if isfinite(value) else "-" for value in times), attained)


def advice_to_json(found: Advice) -> dict[str, Any]:
    """Return what to do, the findings, and the modes; null is not measured."""
    return {
        "verdict": found.verdict,
        "advice": found.advice,
        "findings": [asdict(each) for each in found.findings],
        "modes": {mode: finite(asdict(each)) for mode, each in found.modes.items()},
    }


def write_advice_csv(found: Advice, file: TextIO) -> None:
    """Write a row for each mode."""
    rows = [{"batching": mode, **finite(asdict(each))} for mode, each in found.modes.items()]
    write_rows(rows, file)
