"""Shared and separate pools as a table for people, and as values for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from headway.planning.divisions import name_of
from headway.planning.fleets import attained, p99_tpot_s, p99_ttft_s
from headway.planning.isolation import Isolation, Pools, Run
from headway.planning.isolation_verdict import choose
from headway.planning.shown import Rows, finite, seconds, share_of, write_rows
from headway.report import Figures
from headway.report.text import aligned, number, percent

HEAD = ("pools", "class", "TTFT p99", "TPOT p99", "in time", "tokens/s", "idle while others wait")


def isolation_as_text(found: Isolation) -> str:
    """Return what to do, and what each class got from each division."""
    chosen = choose(found)
    lines = [f"{chosen.verdict}: {chosen.advice}", "", *aligned([HEAD, *pool_rows(found)])]
    if found.num_seeds > 1:
        lines += ["", f"means over {found.num_seeds} seeds; in time: least – most"]
    return "\n".join(lines)


def pool_rows(found: Isolation) -> Rows:
    """Return a row for each class of each division, under :data:`HEAD`."""
    return [row for pools in (found.shared, *found.separate) for row in _rows(pools, found)]


def _rows(pools: Pools, found: Isolation) -> Rows:
    name = name_of(pools.division, found.num_instances)
    idle = percent(pools.of(lambda run: run.idle_share).mean)
    rows = []
    for place, class_name in enumerate(pools.runs[0].classes):
        first = (name, idle) if place == 0 else ("", "")
        rows.append((first[0], class_name, *_cells(pools, class_name), first[1]))
    return rows


def _cells(pools: Pools, class_name: str) -> tuple[str, ...]:
    return (
        seconds(pools.of(of_class(class_name, p99_ttft_s)).mean),
        seconds(pools.of(of_class(class_name, p99_tpot_s)).mean),
        share_of(pools.of(of_class(class_name, attained))),
        number(pools.of(of_class(class_name, output_throughput)).mean),
    )


def of_class(class_name: str, figure: Callable[[Figures], float]) -> Callable[[Run], float]:
    """Return a figure of a class as one of a run."""
    return lambda run: figure(run.classes[class_name])


def output_throughput(each: Figures) -> float:
    """Return output tokens a second."""
    return each.a_second(each.output_tokens)


# -------------------------------------------------------------------- for programs

_FIGURES = {
    "p99_ttft_s": p99_ttft_s,
    "p99_tpot_s": p99_tpot_s,
    "attained": attained,
    "output_throughput": output_throughput,
}


def isolation_to_json(found: Isolation) -> dict[str, Any]:
    """Return what to do, and what each class got; ``instances`` is null of the shared pool."""
    chosen = choose(found)
    return {
        "verdict": chosen.verdict,
        "advice": chosen.advice,
        "instances": dict(chosen.pools.division) or None,
        "num_other_seeds": found.num_others,
        "num_left_out": found.num_left_out,
        "pools": [_to_json(each) for each in (found.shared, *found.separate)],
        "judged": [_to_json(each) for each in found.judged],
    }


def _to_json(pools: Pools) -> dict[str, Any]:
    names = pools.runs[0].classes
    return {
        "instances": dict(pools.division) or None,
        "idle_share": finite(asdict(pools.of(lambda run: run.idle_share))),
        "attained": finite(asdict(pools.of(lambda run: attained(run.overall)))),
        "classes": {
            name: {
                key: finite(asdict(pools.of(of_class(name, figure))))
                for key, figure in _FIGURES.items()
            }
            for name in names
        },
    }


def write_isolation_csv(found: Isolation, file: TextIO) -> None:
    """Write a row for each class of each division."""
    rows = [
        {
            "pools": name_of(pools.division, found.num_instances),
            "class": name,
            "instances": pools.division.get(name),
            **figures,
            "idle_share": asdict(pools.of(lambda run: run.idle_share)),
        }
        for pools in (found.shared, *found.separate)
        for name, figures in _to_json(pools)["classes"].items()
    ]
    write_rows(rows, file)
