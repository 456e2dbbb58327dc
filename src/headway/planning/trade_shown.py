"""A trade as tables for people, and as values for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from math import floor, isfinite, log10
from typing import Any, TextIO

from headway.planning.shown import Rows, finite, seconds, share_of, write_rows
from headway.planning.trade_found import Gain, Outcome, Setting, Trade, Traded
from headway.planning.trade_run import Measured
from headway.planning.trade_verdict import decide, summary
from headway.report.text import aligned, number, percent

HEAD = (
    *("instances", "batch limit", "tokens/s", "TTFT p99", "TPOT p99", "in time"),
    *("mean batch", "busy", "full tokens/s", "unused"),
)
GAIN_HEAD = ("", "in time", "tokens/s", "TTFT p99", "TPOT p99", "unused")


def trade_as_text(trade: Trade) -> str:
    """Return what to do, and for each window the settings beside the present one."""
    found = summary(trade)
    lines = [f"{found.verdict}: {found.advice}"]
    for each in trade.windows:
        lines += ["", title(each), "", *aligned([HEAD, *setting_rows(each, cross(each))])]
        lines += ["", *aligned([GAIN_HEAD, *gain_rows(each)])]
        lines += ["", *checks(each)] if each.checked else []
    if trade.num_seeds > 1:
        lines += ["", f"means over {trade.num_seeds} seeds; in time: least – most"]
    return "\n".join(lines)


def checks(traded: Traded) -> list[str]:
    """Return a line for each setting that was checked with other seeds."""
    return [
        f"with other seeds, {each.instances} x batches of {each.batch_limit}: {percent(share)} "
        "in time"
        for each, share in traded.checked.items()
    ]


def title(traded: Traded) -> str:
    """Return what a window is, in a line."""
    window = traded.window
    places = max(1 - floor(log10(window.length_s)), 0)
    return (
        f"{window.name}: second {window.begin_s:.{places}f} to {window.end_s:.{places}f}, "
        f"{number(window.request_rate)} requests/s"
    )


def cross(traded: Traded) -> list[Outcome]:
    """Return the outcomes that differ from the present setting in one thing only."""
    base = traded.base
    return [
        each
        for setting, each in traded.outcomes.items()
        if setting.instances == base.instances or setting.batch_limit == base.batch_limit
    ]


def setting_rows(traded: Traded, outcomes: list[Outcome]) -> Rows:
    """Return a row for each outcome, under :data:`HEAD`."""
    return [_row(traded, each) for each in outcomes]


def _row(traded: Traded, each: Outcome) -> tuple[str, ...]:
    mark = " *" if each.setting == traded.base else ""
    ttft, tpot = each.of("p99_ttft_s").mean, each.of("p99_tpot_s").mean
    return (
        f"{each.setting.instances}{mark}",
        str(each.setting.batch_limit),
        number(each.of("output_throughput").mean),
        seconds(ttft),
        seconds(tpot),
        share_of(each.of("attained")),
        number(each.of("mean_batch").mean),
        percent(each.of("busy_share").mean),
        number(each.full_throughput),
        percent(each.headroom.mean),
    )


def gain_rows(traded: Traded) -> Rows:
    """Return what a batch twice as large, and one more instance, buy."""
    return [(name, *_gain_cells(traded.gain(setting))) for name, setting in steps(traded)]


def steps(traded: Traded) -> Iterator[tuple[str, Setting]]:
    """Yield both steps from the present setting, as far as there are such settings."""
    base = traded.base
    doubled = Setting(base.instances, 2 * base.batch_limit)
    if doubled in traded.outcomes:
        yield "twice the batch", doubled
    yield "one more instance", Setting(base.instances + 1, base.batch_limit)


def _gain_cells(gain: Gain) -> tuple[str, ...]:
    times = (gain.output_throughput, gain.p99_ttft, gain.p99_tpot)
    return (
        f"{100 * gain.attained:+.1f} points",
        *(f"x {each:.2f}" if isfinite(each) else "–" for each in times),
        f"{100 * gain.headroom:+.1f} points",
    )


# -------------------------------------------------------------------- for programs


def trade_to_json(trade: Trade) -> dict[str, Any]:
    """Return what to do, and for each window all settings and what a step buys."""
    found = summary(trade)
    return {
        "verdict": found.verdict,
        "advice": found.advice,
        "num_other_seeds": trade.num_others,
        "windows": {each.window.name: _window_to_json(each) for each in trade.windows},
    }


def _window_to_json(traded: Traded) -> dict[str, Any]:
    found, window = decide(traded), traded.window
    return {
        "begin_s": window.begin_s,
        "end_s": window.end_s,
        "request_rate": window.request_rate,
        "verdict": found.verdict,
        "advice": found.advice,
        "instances": found.setting.instances,
        "max_num_seqs": found.setting.batch_limit,
        "attained_alone": traded.alone,
        "settings": [_outcome_to_json(traded, each) for each in traded.outcomes.values()],
        "gains": {name: finite(asdict(traded.gain(each))) for name, each in steps(traded)},
    }


def _outcome_to_json(traded: Traded, each: Outcome) -> dict[str, Any]:
    names = [field.name for field in fields(Measured)]
    return {
        "instances": each.setting.instances,
        "max_num_seqs": each.setting.batch_limit,
        "is_present": each.setting == traded.base,
        "full_output_throughput": each.full_throughput,
        "headroom": asdict(each.headroom),
        "attained_with_other_seeds": traded.checked.get(each.setting),
        **{name: finite(asdict(each.of(name))) for name in names},
    }


def write_trade_csv(trade: Trade, file: TextIO) -> None:
    """Write a row for each setting at each window."""
    rows = [
        {"window": traded.window.name, **_outcome_to_json(traded, each)}
        for traded in trade.windows
        for each in traded.outcomes.values()
    ]
    write_rows(rows, file)
